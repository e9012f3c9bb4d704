// An arena that is being released: what has to happen until others can have its memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "replayer/driver/driver_api.h"

namespace nimble {

struct GoingArena {
  CUevent gone = nullptr;  // after its release; owned by the receiver. Null if unknown
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  std::uint64_t bytes = 0;
};

// Waits for the release, at most a second, and makes the pool release the memory; destroys `arena.gone`. Polls, since a
// driver wait could invalidate another thread's capture, and last as long as the GPU waits for this very thread. Any
// thread, without locks.
void let_pool_release(const DriverApi& driver, const GoingArena& arena);

}  // namespace nimble
