// Memory that cuDNN has allocated for itself, on the device or the host: used by its kernels, and out of programs'
// reach.
//
// Its batch norm, for one, has counters there, by which its blocks wait for each other, and in host memory a flag for
// an overflowed sum, for cudnnQueryRuntimeError. An extra or missing call of cuDNN leaves nothing there that a later
// one could notice: so a launch that writes to it can be undone. (A program that asks for that error may get one of an
// undone launch.) cuBLAS is different: it also allocates for programs, by cublasAlloc.
//
// The allocation's return address tells its owner: cuDNN's libraries link their own CUDA runtime statically, and call
// the driver from their own code. We look the address up in the process's mappings, not by dladdr(), which would wait
// for the dynamic loader, once for each call site. A statically linked cuDNN is not recognised. One lock, never held
// while the driver is called. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace nimble::shim {

// The name of the file that is mapped at a code address, without its folders; empty if there is none. Reads the
// process's mappings: for rare use.
std::string file_at(const void* place);
// Whether a code address is in one of them.
bool is_in_such_a_library(const void* place);

class LibraryMemory {
 public:
  // Tests pass another function.
  explicit LibraryMemory(bool (*is_in_library)(const void*) = is_in_such_a_library) : is_in_library_(is_in_library) {}

  // The program, or a library in it, has new memory; `caller`: the call's return address.
  void came(std::uint64_t address, const void* caller);
  // It is about to release what begins there, or has something else there.
  void goes(std::uint64_t address);
  // A context ends, and its memory with it: forgets all memory.
  void forget();
  // Code is unloaded, perhaps its library: another may be loaded at the same address.
  void code_goes();
  // Whether memory that begins there is cuDNN's own. False if that cannot be told.
  bool holds(std::uint64_t address) const;

 private:
  bool (*const is_in_library_)(const void*);
  mutable std::mutex mutex_;                   // guards what follows
  std::map<const void*, bool> is_a_librarys_;  // return addresses of calls
  std::set<std::uint64_t> memory_;             // by its begin
};

// Whether a file of this name is one of them: libcudnn_ops.so.9.
bool is_such_a_library(std::string_view name);

}  // namespace nimble::shim
