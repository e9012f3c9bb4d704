// Opens the shared object inside an image for its table of kernels. None of its code runs.
#include "bench/null_driver/functions.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct CUmod_st {
  std::map<std::string, CUfunc_st> functions;
};

namespace null_driver {

CUresult load_module(CUmodule* module, const char* file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  SimImageHeader header;
  if (bytes.size() < sizeof header) return CUDA_ERROR_INVALID_IMAGE;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, SIMCUDA_IMAGE_MAGIC, sizeof header.magic) != 0 || header.plain_offset > bytes.size() ||
      header.plain_size > bytes.size() - header.plain_offset)
    return CUDA_ERROR_INVALID_IMAGE;
  // The file stays open: the loader would mistake a second one with the same number for it.
  const int object = memfd_create("image", MFD_CLOEXEC);
  const ssize_t written = object < 0 ? -1 : write(object, bytes.data() + header.plain_offset, header.plain_size);
  if (written != static_cast<ssize_t>(header.plain_size)) return CUDA_ERROR_OPERATING_SYSTEM;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", object);
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto image = handle ? reinterpret_cast<decltype(&simcuda_image)>(dlsym(handle, "simcuda_image")) : nullptr;
  if (!image) return CUDA_ERROR_INVALID_IMAGE;

  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static auto& modules = *new std::vector<CUmodule>;  // reachable for leak checkers
  modules.push_back(new CUmod_st);
  *module = modules.back();
  for (std::uint32_t i = 0; i < image()->kernel_count; ++i) {
    const SimKernel& kernel = image()->kernels[i];
    Dl_info symbol;
    if (dladdr(kernel.symbol, &symbol) == 0 || !symbol.dli_sname) return CUDA_ERROR_INVALID_IMAGE;
    (*module)->functions[symbol.dli_sname] = {symbol.dli_sname, kernel.params, kernel.param_count};
  }
  return CUDA_SUCCESS;
}

CUfunction find_function(CUmodule module, const char* name) {
  const auto found = module->functions.find(name);
  return found != module->functions.end() ? &found->second : nullptr;
}

}  // namespace null_driver
