// Makes one schedule of those of several kinds of step: what they begin with alike they share, and behind it each has a
// branch of its own.
//
// Shared ops are in the same segments of every kind that has them, and step-local memory that they name lies in the
// same place, so that replay need not know which kind of step it is until they part. Everything that a kind asks of a
// shared op is asked of it: what is fixed for one is fixed for all, and a graph has the edges of all. Objects that are
// no step's own are one where they were the same allocation in the trace.
//
// Owns what it holds. One thread. Indices are those of the schedule at hand. No errors: kinds that do not go together
// are told apart by a reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/analysis.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

// The schedule of one kind of step by itself, and which allocation of the trace each of its objects was.
struct KindSchedule {
  Schedule schedule;
  std::vector<std::uint32_t> ids;
};

// With how many ops the two begin alike, however these are submitted; and which object of `b` is what in these `a` has
// where: by object of `a`, kNone for those that they do not name.
struct SharedBeginning {
  std::uint32_t ops = 0;
  std::vector<std::uint32_t> object;
};
SharedBeginning shared_beginning(const Schedule& a, const Schedule& b);

class KindMerger {
 public:
  // Adds a kind. Empty, or why it does not go together with those before, which stay as they are.
  std::string add(KindSchedule kind);
  const Schedule& schedule() const { return merged_; }

 private:
  struct Known {
    KindSchedule kind;
    std::vector<std::uint32_t> op, object;  // of the merged schedule, by those of the kind
  };

  void add_branch(const KindSchedule& kind, std::uint32_t from, std::uint32_t after, Known& known);
  void demand(const ScheduleOp& op, const std::vector<std::uint32_t>& object, ScheduleOp& of);
  std::uint32_t function(const Schedule& schedule, std::uint32_t id, const std::vector<std::uint32_t>& object);

  Schedule merged_;
  std::vector<std::uint32_t> ids_;  // by object of merged_
  std::vector<Known> known_;
};

}  // namespace nimble::analyzer
