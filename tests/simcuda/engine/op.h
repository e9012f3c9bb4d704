// One piece of work on its way: submitted, not yet run. Ops come from a pool and are used again, so a reference to one
// holds its number too. Guarded by the driver's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simcuda/engine/work.h"
#include "tests/simcuda/observe/tracking.h"

namespace simcuda {

struct Op {
  Work work;
  std::uint64_t number = 0;  // in program order; 0 once it has run
  std::uint64_t key = 0;     // the greatest of the ready ones runs first
  std::uint32_t waits_for = 0;
  bool running = false;
  std::vector<Op*> successors;
  CUcontext context = nullptr;
  std::uint64_t stream_id = 0;
  std::vector<std::byte> staging;
  std::shared_ptr<void> keeps;                    // what must not go before it has run
  double ready_us = 0, begin_us = 0, end_us = 0;  // simulated
  std::uint32_t call = 0;                         // that submitted it, for observers
  Caller caller;
  // For races.
  Ticks before;
  VectorClock clock;
  std::uint32_t chain = 0, tick = 0;
};

struct OpRef {
  Op* op = nullptr;
  std::uint64_t number = 0;

  OpRef() = default;
  explicit OpRef(Op* to) : op(to), number(to->number) {}
  bool pending() const { return op != nullptr && op->number == number && number != 0; }
};

}  // namespace simcuda
