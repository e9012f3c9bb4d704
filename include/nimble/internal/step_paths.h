// The kinds of step in a schedule, as paths through its ops: steps share the ops of a common beginning.
//
// Ops of a kind have ascending numbers, so code that deals with the order of ops need not know of kinds. A schedule
// that names no kinds has one: all of its ops. Built once, then constant; any thread. The schedule must be valid, as
// its reader ensures. No errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/schedule.h"

namespace nimble {

class StepPaths {
 public:
  explicit StepPaths(const Schedule& schedule) {
    std::vector<std::uint32_t> ends = schedule.ends;
    if (ends.empty() && !schedule.ops.empty()) ends.push_back(static_cast<std::uint32_t>(schedule.ops.size()) - 1);
    for (const std::uint32_t end : ends) {
      Kind& kind = kinds_.emplace_back();
      for (std::uint32_t op = end; op != kNone;) {
        const ScheduleBranch& branch = branch_of(schedule, op);
        for (std::uint32_t at = op + 1; at-- > branch.first;) kind.ops.push_back(at);
        op = branch.after;
      }
      std::reverse(kind.ops.begin(), kind.ops.end());
      for (const std::uint32_t op : kind.ops) {
        const std::uint32_t segment = schedule.ops[op].segment;
        if (segment != kNone && (kind.segments.empty() || kind.segments.back() < segment))
          kind.segments.push_back(segment);
      }
    }
  }

  std::uint32_t kinds() const { return static_cast<std::uint32_t>(kinds_.size()); }
  // The kind's ops, and its segments, in order.
  std::span<const std::uint32_t> ops(std::uint32_t kind) const { return kinds_[kind].ops; }
  std::span<const std::uint32_t> segments(std::uint32_t kind) const { return kinds_[kind].segments; }
  // The length of the two kinds' common beginning, in ops.
  std::uint32_t shared(std::uint32_t one, std::uint32_t other) const {
    const std::vector<std::uint32_t>&a = kinds_[one].ops, &b = kinds_[other].ops;
    return static_cast<std::uint32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }

  static const ScheduleBranch& branch_of(const Schedule& schedule, std::uint32_t op) {
    const auto after = std::upper_bound(schedule.branches.begin(), schedule.branches.end(), op,
                                        [](std::uint32_t o, const ScheduleBranch& branch) { return o < branch.first; });
    return *std::prev(after);
  }

 private:
  struct Kind {
    std::vector<std::uint32_t> ops, segments;
  };
  std::vector<Kind> kinds_;
};

// The schedule of one kind of step alone: its ops and segments renumbered; objects, functions and streams unchanged.
inline Schedule kind_alone(const Schedule& schedule, const StepPaths& paths, std::uint32_t kind) {
  Schedule result = schedule;
  if (paths.kinds() == 1) return result;
  result.branches = {{}};
  result.ends.clear();
  result.ops.clear();
  result.segments.clear();
  std::vector<std::uint32_t> op_of(schedule.ops.size(), kNone), segment_of(schedule.segments.size(), kNone);
  for (const std::uint32_t segment : paths.segments(kind)) {
    segment_of[segment] = static_cast<std::uint32_t>(result.segments.size());
    result.segments.push_back(schedule.segments[segment]);
  }
  for (const std::uint32_t op : paths.ops(kind)) {
    op_of[op] = static_cast<std::uint32_t>(result.ops.size());
    ScheduleOp& mine = result.ops.emplace_back(schedule.ops[op]);
    if (mine.segment != kNone) mine.segment = segment_of[mine.segment];
    if (mine.record != kNone) mine.record = op_of[mine.record];
  }
  for (ScheduleSegment& segment : result.segments) {
    segment.first = op_of[segment.first];
    segment.last = op_of[segment.last];
    for (auto& [from, to] : segment.edges) from = op_of[from], to = op_of[to];
    for (std::uint32_t& op : segment.order) op = op_of[op];
  }
  return result;
}

}  // namespace nimble
