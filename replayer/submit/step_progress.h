// How far the current step has been submitted: which of its kind's segments, and which ops pass instead of being held.
// Not synchronised: the replayer's lock guards it. Allocates nothing once built.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/schedule.h"
#include "nimble/internal/step_paths.h"

namespace nimble {

class StepProgress {
 public:
  // Both must outlive it.
  StepProgress(const Schedule& schedule, const StepPaths& paths)
      : schedule_(schedule), paths_(paths), passing_(schedule.segments.size(), 0) {}

  // A step of this kind begins.
  void begin_step(std::uint32_t kind) {
    ++step_;
    next_ = 0;
    take_for(kind);
    by_graphs_ = true;
  }
  // It is of this kind after all.
  void take_for(std::uint32_t kind) {
    segments_ = paths_.segments(kind);
    find_end();
  }

  // Whether the rest of the step passes, each op to the driver as it comes.
  void pass(bool passes) { passes_ = passes; }
  bool passes() const { return passes_; }
  // The rest of the segment passes, since a part of it was flushed.
  void pass_segment(std::uint32_t segment) { passing_[segment] = step_; }
  bool passes(std::uint32_t segment) const { return passing_[segment] == step_; }

  // A segment is not submitted as a graph.
  void by_calls() { by_graphs_ = false; }
  bool by_graphs() const { return by_graphs_; }

  // Whether all ops of the next segment have come; takes that segment, to be submitted now. `frontier`: the first op
  // that has not come.
  bool is_ready(std::uint32_t frontier) const { return frontier > end_; }
  std::uint32_t take_segment() {
    const std::uint32_t segment = segments_[next_++];
    find_end();
    return segment;
  }

 private:
  void find_end() { end_ = next_ < segments_.size() ? schedule_.segments[segments_[next_]].last : kNone; }

  const Schedule& schedule_;
  const StepPaths& paths_;
  std::span<const std::uint32_t> segments_;  // of the kind
  std::uint32_t next_ = 0;                   // the first that was not submitted yet, in these
  std::uint32_t end_ = kNone;                // its last op; kNone if there is none
  std::vector<std::uint64_t> passing_;       // by segment: the step in which its rest passes
  std::uint64_t step_ = 0;                   // counts begun steps
  bool passes_ = false, by_graphs_ = true;
};

}  // namespace nimble
