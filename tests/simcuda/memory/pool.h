// Stream-ordered memory pools. Under the driver's mutex.
#pragma once

#include <cstdint>

#include "tests/simcuda/driver/objects.h"
#include "tests/simcuda/memory/memory.h"

namespace simcuda {

CUmemoryPool default_pool();
// Of another process: nothing can be allocated from it.
CUmemoryPool make_imported_pool();
// Gives what is free and no longer in use back to the device.
void trim_pools(std::uint64_t keep);
// So does whatever keeps memory that nothing uses: memory is short.
void make_room();
// A block was freed at this point of a stream, or, with no stream, after all work had ended.
void return_to_pool(Block* block, CUstream stream, const Tail& tail);

}  // namespace simcuda
