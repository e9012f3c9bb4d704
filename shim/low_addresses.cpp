#include "shim/low_addresses.h"

#include <dlfcn.h>

#include <atomic>

#include "shim/dlsym_hook.h"
#include "shim/real_driver.h"

namespace nimble::shim {

namespace {

constexpr std::uint64_t kStep = std::uint64_t{1} << 32;

// Where pools begin, where a context has 64 MiB of its own, and where pools are to begin: seen with driver 580 on
// H100. Few sizes are some 16400, and programs have their own code and data from 0x5555 * 2^32 on.
constexpr std::uint64_t kBegin = 0x302000000, kHole = 256 * kStep, kHoleEnd = 0x10004000000, kEnd = 16411 * kStep;
// What somebody else has costs two for each step. A refusal takes some 10 microseconds.
constexpr int kMostRefusals = 512;

class Reservations {
 public:
  explicit Reservations(const AddressCalls& calls) : calls_(calls) {}

  std::uint64_t take(std::uint64_t begin, std::uint64_t end) {
    if (refusals_ == kMostRefusals) return 0;
    if (have(begin, end - begin)) return end - begin;
    ++refusals_;
    const std::uint64_t first = begin / kStep, last = (end - 1) / kStep;
    if (first == last) return 0;
    const std::uint64_t middle = (first + last + 1) / 2 * kStep;
    return take(begin, middle) + take(middle, end);
  }

 private:
  bool have(std::uint64_t begin, std::uint64_t bytes) {
    CUdeviceptr got = 0;
    if (calls_.reserve(&got, bytes, 0, begin, 0) != CUDA_SUCCESS) return false;
    if (got == begin) return true;
    calls_.free(got, bytes);
    return false;
  }

  const AddressCalls calls_;
  int refusals_ = 0;
};

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(known_driver_symbol(name));
  return function != nullptr;
}

// From Pascal on devices have addresses of 49 bits; before, all memory would have to lie in what is taken here. From
// Volta on each process has its own, also where MPS lets several share a device. Those that share their memory with
// the host have not been looked at.
bool has_long_addresses(CUdevice device) {
  decltype(&::cuDeviceGetAttribute) ask;
  int major = 0, integrated = 1;
  return find(ask, "cuDeviceGetAttribute") &&
         ask(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS && major >= 7 &&
         ask(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, device) == CUDA_SUCCESS && integrated == 0;
}

bool all_have_long_addresses() {
  decltype(&::cuDeviceGetCount) count;
  decltype(&::cuDeviceGet) get;
  int devices = 0;
  if (!find(count, "cuDeviceGetCount") || !find(get, "cuDeviceGet") || count(&devices) != CUDA_SUCCESS) return false;
  for (int i = 0; i < devices; ++i) {
    CUdevice device = 0;
    if (get(&device, i) != CUDA_SUCCESS || !has_long_addresses(device)) return false;
  }
  return devices > 0;
}

bool is_sanitized() { return real_dlsym(RTLD_DEFAULT, "__sanitizer_set_report_path") != nullptr; }

}  // namespace

std::uint64_t reserve_addresses(const AddressCalls& calls, std::uint64_t begin, std::uint64_t end) {
  return Reservations(calls).take(begin, end);
}

void keep_low_addresses_free() {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_relaxed) || done.exchange(true)) return;
  AddressCalls calls;
  if (!find(calls.reserve, "cuMemAddressReserve") || !find(calls.free, "cuMemAddressFree")) return;
  if (!is_sanitized() && all_have_long_addresses()) {
    reserve_addresses(calls, kBegin, kHole);
    reserve_addresses(calls, kHoleEnd, kEnd);
  }
}

}  // namespace nimble::shim
