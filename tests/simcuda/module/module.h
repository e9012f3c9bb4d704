// Modules, libraries, and their code: images loaded into this process. Guarded by the driver's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simcuda/engine/work.h"
#include "tests/simcuda/image/image_abi.h"

namespace simcuda {

// One kernel of a loaded image.
struct KernelCode {
  const char* name;  // lives as long as the driver
  SimKernel kernel;  // a copy: the table of the image is gone before the last program's destructor has launched
  bool instrumented;
};

// An image in this process: a shared object, opened from an anonymous file. Unloaded with the last reference.
class LoadedImage {
 public:
  // Null, with the reason in `error`, where the bytes are not an image that this driver loads.
  static std::shared_ptr<LoadedImage> load(const void* bytes, CUcontext context, CUresult& error);
  ~LoadedImage();

  struct Global {
    std::uint64_t address, bytes;
    bool managed;
  };

  std::vector<KernelCode> kernels;
  std::map<std::string, Global> globals;

  const KernelCode* find(const char* name) const;

 private:
  LoadedImage() = default;
  void* handle_ = nullptr;
  int file_ = -1;
};

// The image in a file, or empty.
std::vector<char> read_image_file(const char* path);

}  // namespace simcuda

struct CUmod_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'05;
  std::uint64_t tag = 0;
  std::shared_ptr<simcuda::LoadedImage> image;
  CUcontext context = nullptr;
  CUlibrary library = nullptr;  // which it belongs to, or null
  std::map<const simcuda::KernelCode*, CUfunction> functions;
};

struct CUfunc_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'06;
  std::uint64_t tag = 0;
  const simcuda::KernelCode* code = nullptr;
  CUmodule module = nullptr;
  std::map<int, int> attributes;  // that were set
};

struct CUlib_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'07;
  std::uint64_t tag = 0;
  std::shared_ptr<simcuda::LoadedImage> image;
  std::map<const simcuda::KernelCode*, CUkernel> kernels;
  std::map<CUcontext, CUmodule> modules;
};

struct CUkern_st {
  static constexpr std::uint64_t kTag = 0x51'c0'00'08;
  std::uint64_t tag = 0;
  const simcuda::KernelCode* code = nullptr;
  CUlibrary library = nullptr;
  std::map<int, int> attributes;
};

namespace simcuda {

// What a launch runs: the handle is a CUfunction, or a CUkernel cast to one. Null for anything else.
const KernelCode* code_of(CUfunction function);

// The function of a kernel in a context, whose module comes into being with it.
CUmodule module_of(CUlibrary library, CUcontext context);
CUfunction function_of(CUmodule module, const KernelCode* code);

void unload_module(CUmodule module);

}  // namespace simcuda
