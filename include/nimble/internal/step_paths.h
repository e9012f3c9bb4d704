// The kinds of step in a schedule, as paths through its ops: steps that begin alike share the ops that they begin with.
//
// Ops of a kind have ascending numbers, so whatever looks at the order of ops need not know of kinds. Of a schedule
// that names no kinds there is one: all of its ops. Built once, then constant; any thread. The schedule must be one
// that its reader has accepted, or be built so. No errors.
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
  // The kind's ops, and its segments, in its order.
  std::span<const std::uint32_t> ops(std::uint32_t kind) const { return kinds_[kind].ops; }
  std::span<const std::uint32_t> segments(std::uint32_t kind) const { return kinds_[kind].segments; }
  // With how many ops the two begin alike.
  std::uint32_t shared(std::uint32_t one, std::uint32_t other) const {
    const std::vector<std::uint32_t>&a = kinds_[one].ops, &b = kinds_[other].ops;
    return static_cast<std::uint32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }

  static const ScheduleBranch& branch_of(const Schedule& schedule, std::uint32_t op) {
    const auto behind =
        std::upper_bound(schedule.branches.begin(), schedule.branches.end(), op,
                         [](std::uint32_t o, const ScheduleBranch& branch) { return o < branch.first; });
    return *std::prev(behind);
  }

 private:
  struct Kind {
    std::vector<std::uint32_t> ops, segments;
  };
  std::vector<Kind> kinds_;
};

// The schedule of one kind of step by itself: its ops and segments renumbered, all objects, functions and streams as
// they are.
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
