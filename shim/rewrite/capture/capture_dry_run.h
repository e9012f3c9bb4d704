// Dry runs, followed as if they were captured: tracks which streams would be part of the capture, since events order
// their work after that on the stream where it would have begun.
//
// So a program learns what would bypass a capture (StrayWork) before there is one. Each has a number that no capture of
// the driver has. One lock, never held while the driver is called. Any thread.
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
  // Begins one on the stream with this key. Returns its number.
  std::uint64_t begin(std::uint64_t stream);
  // How many streams were part of it, including the one that it began on; 0 if there is none of this number.
  std::size_t end(std::uint64_t number);
  // Whether any is under way. Takes no lock.
  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }
  // The driver has accepted a call, which may record an event, or make a stream wait for one.
  void follow(const Call& call);
  // A call is about to reach the driver that may end an event or a stream: after it the handle may be reused.
  void ending(const Call& call);
  // The numbers of the dry runs that the stream's work is part of.
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
