// Memory that cuDNN has allocated for itself, of the device or the host: what its kernels work in, and no program
// reaches.
//
// Its batch norm, for one, has counters there, by which its blocks wait for each other, and in the host's memory a flag
// that says that a sum has overflowed, for cudnnQueryRuntimeError. A call more or less of cuDNN leaves nothing there
// that a later one could tell: so a launch that writes to it can be taken back. (Who asks for that error may hear of
// one in a launch that was taken back.) cuBLAS is another case: it allocates for programs as well, by cublasAlloc.
//
// Whose memory it is the allocation's return address tells: cuDNN's libraries have a CUDA runtime of their own linked
// in, and call the driver from their own code. It is looked for among the process's mappings, not by dladdr(), which
// would wait for the dynamic loader, and once for each place. Linked into something else cuDNN is not known. One lock,
// never held while the driver is called. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace nimble::shim {

// The name of the file that is mapped at a place in the code, without its folders; empty where there is none. Reads the
// process's mappings: for rare questions.
std::string file_at(const void* place);
// Whether a place in the code is in one of them.
bool is_in_such_a_library(const void* place);

class LibraryMemory {
 public:
  // Tests have another question in the place of this one.
  explicit LibraryMemory(bool (*is_in_library)(const void*) = is_in_such_a_library) : is_in_library_(is_in_library) {}

  // The program, or a library in it, has new memory; `caller`: where the call returns to.
  void came(std::uint64_t address, const void* caller);
  // It is about to release what begins there, or has something else there.
  void goes(std::uint64_t address);
  // A context ends, and its memory with it: of what there was before nothing is known any more.
  void forget();
  // Code is unloaded, its library perhaps: another may come to the same place.
  void code_goes();
  // Whether memory that begins there is cuDNN's own. False where that cannot be told.
  bool holds(std::uint64_t address) const;

 private:
  bool (*const is_in_library_)(const void*);
  mutable std::mutex mutex_;                   // guards what follows
  std::map<const void*, bool> is_a_librarys_;  // places that calls return to
  std::set<std::uint64_t> memory_;             // by its begin
};

// Whether a file of this name is one of them: libcudnn_ops.so.9.
bool is_such_a_library(std::string_view name);

}  // namespace nimble::shim
