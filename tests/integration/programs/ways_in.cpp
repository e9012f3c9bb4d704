// Launches one kernel 20 times, reaching the driver in the way that its argument names:
//   linked           calls that the linker bound
//   dlsym            dlopen and dlsym of exported names
//   proc_address     cuGetProcAddress, version 1
//   proc_address_v2  cuGetProcAddress, version 2, per-thread default stream variants
// Prints the sum of the result.
#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <vector>

#include "tests/integration/programs/driver.h"

namespace {

constexpr int kCount = 64, kLaunches = 20;

// What the program needs of the driver, however it was found.
struct Driver {
  decltype(&::cuLaunchKernel) launch_kernel;
  CUresult (*mem_alloc)(CUdeviceptr*, std::size_t);
  CUresult (*memset_d32)(CUdeviceptr, unsigned, std::size_t);
  CUresult (*memcpy_dtoh)(void*, CUdeviceptr, std::size_t);
};

// Fills the table through `find`, which takes the plain name and the exported one.
template <class Find>
Driver find_all(Find find) {
  Driver driver{};
  const auto get = [&](auto& pointer, const char* plain, const char* exported) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(find(plain, exported));
    if (!pointer) {
      std::fprintf(stderr, "not found: %s\n", plain);
      std::exit(1);
    }
  };
  get(driver.launch_kernel, "cuLaunchKernel", "cuLaunchKernel");
  get(driver.mem_alloc, "cuMemAlloc", "cuMemAlloc_v2");
  get(driver.memset_d32, "cuMemsetD32", "cuMemsetD32_v2");
  get(driver.memcpy_dtoh, "cuMemcpyDtoH", "cuMemcpyDtoH_v2");
  return driver;
}

Driver find_driver(const std::string& way) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (way == "linked") return {&::cuLaunchKernel, &::cuMemAlloc, &::cuMemsetD32, &::cuMemcpyDtoH};
  if (way == "dlsym") return find_all([&](const char*, const char* exported) { return dlsym(library, exported); });
  if (way == "proc_address") {
    using Find = CUresult (*)(const char*, void**, int, cuuint64_t);
    const auto get = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress"));
    return find_all([&](const char* plain, const char*) {
      void* pointer = nullptr;
      CHECK(get(plain, &pointer, 12000, CU_GET_PROC_ADDRESS_DEFAULT));
      return pointer;
    });
  }
  if (way == "proc_address_v2") {
    return find_all([&](const char* plain, const char*) {
      void* pointer = nullptr;
      CHECK(cuGetProcAddress(plain, &pointer, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
      return pointer;
    });
  }
  std::fprintf(stderr, "usage: ways_in linked|dlsym|proc_address|proc_address_v2\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const Driver driver = find_driver(argc > 1 ? argv[1] : "");
  start_driver();
  CUmodule module = nullptr;
  CUfunction update = nullptr;
  CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&update, module, "_Z6updateILi1EEvPjPKji"));
  CUdeviceptr state = 0, change = 0;
  CHECK(driver.mem_alloc(&state, kCount * sizeof(unsigned)));
  CHECK(driver.mem_alloc(&change, kCount * sizeof(unsigned)));
  CHECK(driver.memset_d32(state, 1, kCount));
  CHECK(driver.memset_d32(change, 2, kCount));
  int count = kCount;
  void* arguments[] = {&state, &change, &count};
  for (int i = 0; i < kLaunches; ++i)
    CHECK(driver.launch_kernel(update, 1, 1, 1, kCount, 1, 1, 0, nullptr, arguments, nullptr));
  std::vector<unsigned> result(kCount);
  CHECK(driver.memcpy_dtoh(result.data(), state, kCount * sizeof(unsigned)));
  unsigned sum = 0;
  for (const unsigned value : result) sum += value;
  std::printf("%u\n", sum);
  return 0;
}
