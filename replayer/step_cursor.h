// How far the program has come in a step: on each of its streams, and in all.
//
// On one stream ops come in the schedule's order. Across streams they may come in any order that the program's events
// allow, and in another one each time, where several threads issue them. Owns its lists; allocates nothing once built.
// Op numbers are indices into Schedule::ops. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/schedule.h"

namespace nimble {

class StepCursor {
 public:
  explicit StepCursor(const Schedule& schedule)
      : stream_(schedule.ops.size()),
        came_(schedule.ops.size(), 0),
        ops_(schedule.streams.size()),
        next_(schedule.streams.size(), 0) {
    for (std::uint32_t op = 0; op < stream_.size(); ++op) {
      stream_[op] = schedule.ops[op].stream;
      ops_[stream_[op]].push_back(op);
    }
  }

  // No op of the step has come.
  void reset() {
    ++step_;
    count_ = frontier_ = 0;
    next_.assign(next_.size(), 0);
  }
  bool begun() const { return count_ != 0; }
  bool complete() const { return count_ == stream_.size(); }
  // Whether an op has come on the stream.
  bool begun(std::uint32_t stream) const { return next_[stream] != 0; }

  // The op that should come next on the stream; kNone where the step has no more there.
  std::uint32_t next(std::uint32_t stream) const {
    return next_[stream] < ops_[stream].size() ? ops_[stream][next_[stream]] : kNone;
  }
  // The stream's first op in a step.
  std::uint32_t first(std::uint32_t stream) const { return ops_[stream].empty() ? kNone : ops_[stream].front(); }

  // The op has come: it was the next one on its stream.
  void advance(std::uint32_t op) {
    ++count_;
    ++next_[stream_[op]];
    came_[op] = step_;
    while (frontier_ < came_.size() && came_[frontier_] == step_) ++frontier_;
  }
  // The first op that has not come.
  std::uint32_t frontier() const { return frontier_; }

 private:
  std::vector<std::uint32_t> stream_;            // by op
  std::vector<std::uint64_t> came_;              // by op: the step in which it came last
  std::vector<std::vector<std::uint32_t>> ops_;  // by stream
  std::vector<std::size_t> next_;                // by stream: index into its ops
  std::size_t count_ = 0;
  std::uint32_t frontier_ = 0;
  std::uint64_t step_ = 1;
};

}  // namespace nimble
