#include "replayer/bundle/process/live_driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <utility>

#include "replayer/driver/result_name.h"

namespace nimble::bundle {

namespace {

// Two steps, so that cuda.h's version macros are expanded before the name becomes text.
#define NIMBLE_TEXT_(name) #name
#define NIMBLE_TEXT(name) NIMBLE_TEXT_(name)

}  // namespace

std::uint64_t memory_of_machine() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(bytes)
                                : ~std::uint64_t{0};
}

LiveDriver::LiveDriver(int device) {
  library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library_) throw DriverError(std::string("no CUDA driver: ") + ::dlerror());
  const char* missing = api_.load(*this, /*audits=*/true);
#define X(name)                                                                    \
  name##_ = reinterpret_cast<decltype(name##_)>(driver_symbol(NIMBLE_TEXT(name))); \
  if (!name##_) missing = NIMBLE_TEXT(name);
  NIMBLE_BUNDLE_FUNCTIONS(X)
#undef X
  if (!missing && !api_.cuEventElapsedTime_) missing = "cuEventElapsedTime";
  if (missing) throw DriverError(std::string("the driver has no ") + missing);
  simulated_ = driver_symbol("simcuda_implements") != nullptr;
  check(cuInit_(0), "when it is initialised");
  check(cuDeviceGet_(&device_, device), "for the device");
  char name[256] = "";
  check(cuDeviceGetName_(name, sizeof name - 1, device_), "for the device's name");
  device_name_ = name;
  check(cuDevicePrimaryCtxRetain_(&context_, device_), "for a context");
  check(cuCtxSetCurrent_(context_), "for a context");
}

void* LiveDriver::driver_symbol(const char* name) { return ::dlsym(library_, name); }

void LiveDriver::refused(CUresult result, const char* doing) {
  throw DriverError("the driver returns " + result_name(result) + " " + doing);
}

void LiveDriver::know(CUfunction handle, FunctionInfo info) { functions_[handle] = std::move(info); }

const FunctionInfo& LiveDriver::function(CUfunction handle) { return functions_.at(handle); }

}  // namespace nimble::bundle
