// Runs that are followed as if they were captured, though nothing is: which streams would be a part of the capture,
// since what is put on them comes behind what is on the stream where it would have begun, by events.
//
// So a program learns what would go past a capture (StrayWork) before there is one. Each has a number that no capture
// of the driver's has. One lock, never held while the driver is called. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble::shim {

class Rehearsals {
 public:
  // Of a capture that would begin on the stream with this key. Its number.
  std::uint64_t begin(std::uint64_t stream);
  // How many streams were a part of it, the one that it began on among them; 0 where there is none of this number.
  std::size_t end(std::uint64_t number);
  // Whether any goes on. Costs no lock.
  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }
  // The driver has taken a call, which may record an event, or have a stream wait for one.
  void follow(const Call& call);
  // A call is on its way to the driver, which may end an event or a stream: behind it the handle may be another's.
  void ending(const Call& call);
  // The numbers of those that work on the stream is a part of.
  std::vector<std::uint64_t> of(std::uint64_t stream) const;

 private:
  struct Rehearsal {
    std::set<std::uint64_t> streams;
    std::set<CUevent> events;  // last recorded on one of these
  };

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Rehearsal> rehearsals_;
  std::uint64_t last_ = 0;
  std::atomic<int> count_{0};
};

}  // namespace nimble::shim
