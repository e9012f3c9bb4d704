// A library that uses the driver, and is loaded by a program that does not. Linked against the driver, or with
// WAYS_STUBS not: then it brings stubs of its own, which load the driver when they are first called, as XLA's do.
//
//   plugin_run("linked" | "default"), plugin_finds(name)
#include <dlfcn.h>

#include "tests/integration/programs/common/workload.h"

#ifdef WAYS_STUBS
namespace {

template <class Function>
Function* load(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(library ? dlsym(library, name) : nullptr);
}

template <class Function>
struct Stub;
template <class... Args>
struct Stub<CUresult(Args...)> {
  static CUresult call(const char* name, Args... args) { return load<CUresult(Args...)>(name)(args...); }
};

}  // namespace

#define STUB(name, parameters, arguments) \
  CUresult name parameters { return Stub<CUresult parameters>::call arguments; }
extern "C" {
STUB(cuInit, (unsigned flags), ("cuInit", flags))
STUB(cuDeviceGet, (CUdevice * device, int number), ("cuDeviceGet", device, number))
STUB(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), ("cuDevicePrimaryCtxRetain", context, device))
STUB(cuCtxSetCurrent, (CUcontext context), ("cuCtxSetCurrent", context))
STUB(cuModuleLoad, (CUmodule * module, const char* path), ("cuModuleLoad", module, path))
STUB(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
     ("cuModuleGetFunction", function, module, name))
STUB(cuModuleUnload, (CUmodule module), ("cuModuleUnload", module))
STUB(cuMemAlloc, (CUdeviceptr * pointer, std::size_t bytes), ("cuMemAlloc_v2", pointer, bytes))
STUB(cuMemsetD32, (CUdeviceptr pointer, unsigned value, std::size_t count), ("cuMemsetD32_v2", pointer, value, count))
STUB(cuMemcpyDtoH, (void* to, CUdeviceptr from, std::size_t bytes), ("cuMemcpyDtoH_v2", to, from, bytes))
STUB(cuLaunchKernel,
     (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, CUstream stream, void** parameters, void** extra),
     ("cuLaunchKernel", function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
}
#endif

extern "C" {

bool plugin_finds(const char* name) { return dlsym(RTLD_DEFAULT, name) != nullptr; }

unsigned plugin_run(const char* way) {
  if (std::string(way) == "linked") {
    // The first call of all is one that is intercepted; it fails, but not for lack of a driver.
    std::printf("too early: %d\n", cuModuleUnload(nullptr));
    return run_workload(linked_driver());
  }
  return run_workload(find_driver([](const char*, const char* name) { return dlsym(RTLD_DEFAULT, name); }));
}
}
