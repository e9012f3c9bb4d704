// Describes the memory of one capture: where its allocations are to lie, and what became of them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace nimble::shim {

// Where a capture's allocations go: for each, in order, its requested size and its place in one block of memory. Those
// that outlast the capture have no place.
struct CapturePlan {
  struct Allocation {
    std::uint64_t size = 0;
    std::optional<std::uint64_t> offset;
  };
  std::vector<Allocation> allocations;
  std::uint64_t bytes = 0;  // of the block
};

// What became of a capture's allocations.
struct CaptureMemory {
  struct Event {
    std::size_t node = 0;  // how many nodes the graph had by then
    bool released = false;
    std::uint64_t address = 0, size = 0;  // as asked for
  };
  // `again`: slots were reused at once, and each counts as one allocation. `once`: no two allocations share a byte,
  // except as the plan says. `broken`: the capture has not followed its plan, or is one of several that have built the
  // graph.
  enum class Kind : std::uint8_t { again, once, broken };
  Kind kind = Kind::again;
  std::vector<Event> events;
  std::vector<std::uint64_t> lasting;  // addresses that were not released in it
  struct Block {
    std::uint64_t base = 0, size = 0;
  };
  std::vector<Block> blocks;  // of plans
};

// Where the memory of a capture lies.
struct CaptureHome {
  CUcontext context = nullptr;
  // From the device's pool, after so many changes of it by the program; 0: from the device directly.
  std::uint64_t pool = 0;
  bool operator==(const CaptureHome&) const = default;
};

// One allocation from the driver, and how much of it has been cut into slots.
struct MemoryChunk {
  std::uint64_t base = 0, size = 0, used = 0;

  bool holds(std::uint64_t address) const { return address - base < size; }
};

// What one allocation gets.
struct MemorySlot {
  std::uint64_t address = 0, size = 0;
  bool known = false;  // it has been handed out before
};

}  // namespace nimble::shim
