// Merges the schedules of several kinds of step into one: they share what they begin with alike, and after that each
// has its own branch.
//
// Shared ops are in the same segments in every kind that has them, and step-local memory that they name is in the same
// place, so that replay need not know which kind of step it is until they part. A shared op has to meet what every kind
// asks of it: what is fixed for one is fixed for all, and a graph has the edges of all. Objects that are not step-local
// are merged if they were the same allocation in the trace.
//
// Owns what it holds. One thread. Indices are those of the schedule at hand. No errors: if kinds are incompatible, the
// reason is returned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/analysis.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

// The schedule of one kind of step by itself, and for each of its objects the allocation in the trace.
struct KindSchedule {
  Schedule schedule;
  std::vector<std::uint32_t> ids;
};

// How many ops at the beginning of the two are alike, however they are submitted; and which object of `b` plays the
// role of which object of `a` in these: by object of `a`, kNone for those that they do not name.
struct SharedBeginning {
  std::uint32_t ops = 0;
  std::vector<std::uint32_t> object;
};
SharedBeginning shared_beginning(const Schedule& a, const Schedule& b);

class KindMerger {
 public:
  // Adds a kind. Empty, or why it is incompatible with the earlier ones, which then stay as they are.
  std::string add(KindSchedule kind);
  const Schedule& schedule() const { return merged_; }

 private:
  struct Known {
    KindSchedule kind;
    std::vector<std::uint32_t> op, object;  // in the merged schedule, by those of the kind
  };

  void begin(const Schedule& first);
  // Finds or adds each of the kind's objects. False if one that it shares has another place there.
  bool add_objects(const SharedBeginning& most, const Known* with, Known& known);
  // Adds to the segments of the first `ops`, which are shared, the edges of this kind.
  void share_segments(const Known& known, std::uint32_t ops);
  void add_totals(const Known& known);
  void add_branch(const KindSchedule& kind, std::uint32_t from, std::uint32_t after, Known& known);
  void demand(const ScheduleOp& op, const std::vector<std::uint32_t>& object, ScheduleOp& of);
  std::uint32_t function(const Schedule& schedule, std::uint32_t id, const std::vector<std::uint32_t>& object);

  Schedule merged_;
  std::vector<std::uint32_t> ids_;  // by object of merged_
  std::vector<Known> known_;
};

}  // namespace nimble::analyzer
