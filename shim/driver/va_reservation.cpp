#include "shim/driver/va_reservation.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "nimble/internal/process/not_cancelled.h"
#include "shim/driver/dlsym_hook.h"
#include "shim/driver/guard.h"
#include "shim/driver/real_driver.h"
#include "shim/process/log.h"
#include "shim/process/roomy_stack.h"

namespace nimble::shim {

namespace {

constexpr std::uint64_t kStep = std::uint64_t{1} << 32;

// Where pools begin, where a context has 64 MiB of its own, and where we want pools to begin: seen with driver 580 on
// H100. Few sizes are around 16400, and programs have their own code and data from 0x5555 * 2^32 on.
constexpr std::uint64_t kBegin = 0x302000000, kHole = 256 * kStep, kHoleEnd = 0x10004000000, kEnd = 16411 * kStep;
// A range taken by others costs two refusals per step, at some 10 microseconds each.
constexpr int kMostRefusals = 512;

class Reservations {
 public:
  Reservations(const AddressCalls& calls, std::vector<AddressRange>& taken) : calls_(calls), taken_(taken) {}

  // No deeper than there are bits in a number.
  void take(std::uint64_t begin, std::uint64_t end) {
    if (refusals_ == kMostRefusals) return;
    if (have(begin, end - begin)) return;
    ++refusals_;
    const std::uint64_t first = begin / kStep, last = (end - 1) / kStep;
    if (first == last) return;
    const std::uint64_t middle = (first + last + 1) / 2 * kStep;
    take(begin, middle);
    take(middle, end);
  }

 private:
  bool have(std::uint64_t begin, std::uint64_t bytes) {
    taken_.reserve(taken_.size() + 1);  // so that no reservation is lost
    CUdeviceptr got = 0;
    if (calls_.reserve(&got, bytes, 0, begin, 0) != CUDA_SUCCESS) return false;
    if (got == begin) {
      taken_.push_back({begin, bytes});
      return true;
    }
    calls_.free(got, bytes);
    return false;
  }

  const AddressCalls calls_;
  std::vector<AddressRange>& taken_;
  int refusals_ = 0;
};

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(known_driver_symbol(name));
  return function != nullptr;
}

// From Pascal on devices have addresses of 49 bits; before, all memory would have to lie in the range taken here. From
// Volta on each process has its own address space, also where MPS lets several share a device. Devices that share
// memory with the host are untested.
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

// Whether the program's address space is limited: reserved addresses count as used.
bool is_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// The driver keeps the host from using these addresses, too, by mappings without access. They are empty: neither a core
// dump nor a forked child, which could not release them, needs them. If there is no mapping, there is nothing to do.
void keep_to_this_process(const AddressRange& range) {
  void* const begin = reinterpret_cast<void*>(range.address);
  ::madvise(begin, range.bytes, MADV_DONTDUMP);
  ::madvise(begin, range.bytes, MADV_DONTFORK);
}

// What this process has reserved. Never destroyed: several threads may be about to release it.
struct Kept {
  AddressCalls calls;
  pid_t owner = 0;
  std::vector<AddressRange> ranges;  // owned by the thread that has set goes_back
  std::atomic<bool> goes_back{false}, is_back{false};
};
constinit std::atomic<Kept*> g_kept{nullptr};
constexpr int kPatienceMs = 5000;

void say_refused(const std::vector<AddressRange>& ranges, CUresult refusal) noexcept {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  std::uint64_t bytes = 0;
  for (const AddressRange& range : ranges) bytes += range.bytes;
  try {
    log(LogLevel::warning,
        fmt::format("the driver does not release {} GiB of reserved addresses (error {}): they count towards the "
                    "limit of this process's address space",
                    bytes >> 30, static_cast<int>(refusal)));
  } catch (...) {  // no memory: it is left unsaid
  }
}

bool is_sanitized() { return real_dlsym(RTLD_DEFAULT, "__sanitizer_set_report_path") != nullptr; }

}  // namespace

void reserve_addresses(const AddressCalls& calls, std::uint64_t begin, std::uint64_t end,
                       std::vector<AddressRange>& taken) {
  Reservations(calls, taken).take(begin, end);
}

CUresult give_back(const AddressCalls& calls, std::vector<AddressRange>& taken) noexcept {
  CUresult refusal = CUDA_SUCCESS;
  std::erase_if(taken, [&](const AddressRange& range) {
    const CUresult result = calls.free(range.address, range.bytes);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE) return true;
    refusal = result;
    return false;
  });
  return refusal;
}

void keep_low_addresses_free() {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_relaxed) || done.exchange(true)) return;
  if (is_limited() || is_sanitized()) return;
  AddressCalls calls;
  if (!find(calls.reserve, "cuMemAddressReserve") || !find(calls.free, "cuMemAddressFree")) return;
  if (!all_have_long_addresses()) return;
  auto kept = std::make_unique<Kept>();
  kept->calls = calls;
  kept->owner = ::getpid();
  reserve_addresses(calls, kBegin, kHole, kept->ranges);
  reserve_addresses(calls, kHoleEnd, kEnd, kept->ranges);
  for (const AddressRange& range : kept->ranges) keep_to_this_process(range);
  g_kept.store(kept.release(), std::memory_order_release);
  if (is_limited()) give_addresses_back();  // another thread may have set a limit meanwhile
}

void give_addresses_back() noexcept {
  Kept* const kept = g_kept.load(std::memory_order_acquire);
  if (!kept || kept->owner != ::getpid() || kept->is_back.load(std::memory_order_acquire)) return;
  if (kept->goes_back.exchange(true, std::memory_order_acq_rel)) {
    // The limit must come after that; but not inside a driver call, which the first thread may be waiting for.
    const NotCancelled not_cancelled;
    for (int i = 0; i < kPatienceMs && !Guard::inside() && kept->goes_back.load(std::memory_order_acquire); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  const Guard guard;  // these calls are ours
  with_room([&] {
    const CUresult refusal = give_back(kept->calls, kept->ranges);
    if (!kept->ranges.empty()) say_refused(kept->ranges, refusal);
  });
  kept->is_back.store(kept->ranges.empty(), std::memory_order_release);
  kept->goes_back.store(false, std::memory_order_release);
}

}  // namespace nimble::shim
