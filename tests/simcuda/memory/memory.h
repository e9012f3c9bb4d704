// Every piece of memory that the simulated device may touch: device, pooled, managed, pinned, registered and mapped
// memory, and the globals of modules.
//
// A block has two lives. What the API says (`allocated`) changes when the program calls; what the device says (`live`)
// changes when the op runs that allocates or frees it in stream order. Ops are checked against the second, so a use
// that nothing orders after the allocation, or before the release, is caught in the order in which it happens to run.
//
// Guarded by the driver's mutex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "tests/simcuda/engine/op.h"
#include "tests/simcuda/engine/work.h"
#include "tests/simcuda/memory/region.h"

namespace simcuda {

enum class BlockKind : std::uint8_t {
  kDevice,
  kPool,
  kGraph,
  kManaged,
  kPinned,
  kRegistered,
  kMapped,
  kGlobal,
  kOpened
};

class GraphMemory;

struct Block {
  std::uint64_t base = 0;
  std::uint64_t capacity = 0;    // of the addresses it holds
  std::uint64_t bytes = 0;       // as the program asked for
  std::uint64_t live_bytes = 0;  // as the device sees it
  BlockKind kind = BlockKind::kDevice;
  bool allocated = false, live = false;
  bool outstanding = false;         // of a graph: a launch allocated it, and nothing has freed it yet
  bool synchronous_copies = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  unsigned host_flags = 0;
  std::uint64_t id = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  GraphMemory* graph_memory = nullptr;  // of a graph: who owns it
  std::uint64_t launch = 0, begin = 0;  // of a graph: which launch has left it, and where in the memory of that
  // Where it was freed in stream order.
  OpRef freed;
  CUstream freed_stream = nullptr;
  std::uint64_t freed_stream_id = 0;
  double freed_us = 0;
  VectorClock freed_clock;

  bool on_host() const { return kind == BlockKind::kPinned || kind == BlockKind::kRegistered; }
};

class Memory {
 public:
  static constexpr std::uint64_t kTotal = std::uint64_t{150'754'820'096};  // of the device we pretend to be

  // How much the device has, and how much of that is left.
  std::uint64_t total() const { return total_; }
  std::uint64_t left() const { return total_ - std::min(used_, total_); }
  void has_only(std::uint64_t bytes) { total_ = bytes; }
  // Memory without an address: false where there is none left.
  bool use(std::uint64_t bytes);
  void use_no_more(std::uint64_t bytes) { used_ -= bytes; }

  // Null where memory is used up. A graph's has an address only: what lies there it shares with other graphs that do
  // not run at the same time, and a launch fails where there is not enough.
  Block* allocate(BlockKind kind, std::uint64_t bytes, std::uint64_t capacity, CUcontext context);
  // Memory that is not ours: pinned, registered, a module's global.
  Block* adopt(BlockKind kind, std::uint64_t base, std::uint64_t bytes, CUcontext context);
  void release(Block* block);
  // The block is another allocation from here on: what the program asks about it has answers of its own.
  void renew(Block* block);

  // The block that this address lies in, whatever its state; null where there is none.
  Block* find(std::uint64_t address);
  // ... only if the program may use it.
  Block* find_allocated(std::uint64_t address);
  // ... only if the driver knows it as memory by now: that of a graph is there from a launch to a release alone.
  Block* find_known(std::uint64_t address);
  // Whether the device may touch all of this now; if not, where it first may not. Plain host memory is for the host's
  // ops.
  bool accessible(std::uint64_t address, std::uint64_t bytes, bool host_memory_too, std::uint64_t* where);
  bool on_device(std::uint64_t address) const { return region_.contains(address); }

  std::uint64_t used() const { return used_; }
  Region& region() { return region_; }
  std::map<std::uint64_t, Block>& blocks() { return blocks_; }

 private:
  Region region_;
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t total_ = kTotal, used_ = 0, next_id_ = 1;
};

}  // namespace simcuda
