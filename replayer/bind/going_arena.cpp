#include "replayer/bind/going_arena.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "replayer/driver/current_context.h"

namespace nimble {

void let_pool_release(const DriverApi& driver, const GoingArena& arena) {
  constexpr int kMostLooks = 10'000;
  constexpr std::chrono::microseconds kLook{100};
  const NotCancelled not_cancelled;
  const CurrentContext current(driver, arena.context);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // another thread may capture
  const bool relaxed = driver.cuThreadExchangeStreamCaptureMode_(&mode) == CUDA_SUCCESS;
  CUresult happened = CUDA_ERROR_NOT_READY;
  for (int i = 0; relaxed && i < kMostLooks; ++i) {
    happened = driver.cuEventQuery_(arena.gone);
    if (happened != CUDA_ERROR_NOT_READY) break;
    std::this_thread::sleep_for(kLook);
  }
  cuuint64_t reserved = 0;
  if (happened == CUDA_SUCCESS && arena.pool &&
      driver.cuMemPoolGetAttribute_(arena.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS)
    driver.cuMemPoolTrimTo_(arena.pool, reserved - std::min<cuuint64_t>(reserved, arena.bytes));
  driver.cuEventDestroy_(arena.gone);
  if (relaxed) driver.cuThreadExchangeStreamCaptureMode_(&mode);
}

}  // namespace nimble
