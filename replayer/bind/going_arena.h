// An arena that is being given back: what has to happen until others can have its memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "replayer/driver/driver_api.h"

namespace nimble {

struct GoingArena {
  CUevent gone = nullptr;  // after its release; the receiver's. Null where nothing is known of it
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  std::uint64_t bytes = 0;
};

// Waits for the release, for a second at most, and has the pool let go of the memory; ends `arena.gone`. No wait of the
// driver's: that could end a capture of another thread's, and last as long as the GPU waits for this very thread. So it
// polls. Any thread, without locks.
void let_pool_release(const DriverApi& driver, const GoingArena& arena);

}  // namespace nimble
