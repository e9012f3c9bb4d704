#include "replayer/bind/allocation_attributes.h"

#include <algorithm>

#include "replayer/driver/current_context.h"

namespace nimble {

void AllocationAttributes::answer(Call& call, std::uint64_t base, const DriverApi& driver, CUcontext context) {
  if (!call.asked.id && !call.asked.sets && !any_.load(std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(base); found != known_.end()) {
      call.asked.buffer_id = found->second.id;
      call.asked.synchronous_copies = found->second.synchronous;
    }
  }
  const std::uint64_t fresh = call.asked.id && call.asked.buffer_id == 0 ? fresh_id(driver, context) : 0;
  if (fresh == 0 && !call.asked.sets) return;
  const std::lock_guard lock(mutex_);
  Known& known = known_[base];
  any_.store(true, std::memory_order_release);
  if (known.id == 0) known.id = fresh;  // another thread may have asked meanwhile
  call.asked.buffer_id = known.id;
  if (!call.asked.sets) return;
  known.synchronous = call.transfer.value != 0;
  // The driver sees the arena as one allocation: its copies are synchronous as long as those of any allocation in it
  // are.
  call.transfer.value = std::ranges::any_of(known_, [](const auto& one) { return one.second.synchronous; }) ? 1 : 0;
}

bool AllocationAttributes::is_synchronous(std::uint64_t base) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(base);
  return found != known_.end() && found->second.synchronous;
}

void AllocationAttributes::forget(std::uint64_t base) {
  const std::lock_guard lock(mutex_);
  known_.erase(base);
  if (known_.empty()) any_.store(false, std::memory_order_release);
}

// Allocates on a stream of its own, which no capture can include; but in relaxed mode, since during a capture of this
// thread, or a global-mode one of another, the driver would refuse the call and invalidate the capture. Destroys the
// stream at once, since its context may end. 0 if the driver has no memory.
std::uint64_t AllocationAttributes::fresh_id(const DriverApi& driver, CUcontext context) {
  if (!context || !driver.cuStreamCreate_) return 0;
  const CurrentContext current(driver, context);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool relaxed = driver.cuThreadExchangeStreamCaptureMode_(&mode) == CUDA_SUCCESS;
  CUstream stream = nullptr;
  unsigned long long id = 0;
  if (driver.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    CUdeviceptr piece = 0;
    if (driver.cuMemAllocAsync_(&piece, 1, stream) == CUDA_SUCCESS) {
      if (driver.cuPointerGetAttribute_(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, piece) != CUDA_SUCCESS) id = 0;
      driver.cuMemFreeAsync_(piece, stream);
    }
    driver.cuStreamDestroy_(stream);
  }
  if (relaxed) driver.cuThreadExchangeStreamCaptureMode_(&mode);
  return id;
}

}  // namespace nimble
