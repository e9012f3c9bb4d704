// Which ops of the step must stay in order, because they touch the same bytes and one of them writes.
//
// One pass over the ops in program order, with the last writers and the readers since of every part of every object.
// Ops that touch everything (barriers) come after all that is still open, and before all that follows. A dependency
// that is implied by two others through a common op may be left out; none is added that the program had not
// established. Ops that may be talking to somebody else keep their order, too, and what others may take for a sign that
// all before it is done comes behind that (analyzer/order/communication.h). Pairs that
// conflict, or may both be talking to others, without having been ordered by the program are races, and are counted.
// Owns its lists. No errors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/step/happens_before.h"

namespace nimble::analyzer {

enum class DependencyKind : std::uint8_t {
  read_after_write,
  write_after_write,
  write_after_read,
  order,  // event records and waits, ops that are assumed to touch everything, and those that may communicate
};

inline constexpr int kDependencyKinds = 4;

inline constexpr std::string_view name(DependencyKind kind) {
  constexpr std::string_view names[kDependencyKinds] = {"read after write", "write after write", "write after read",
                                                        "order"};
  return names[static_cast<int>(kind)];
}

// `from` comes before `to`; both are indices into the step.
struct Dependency {
  std::uint32_t from = 0, to = 0;
  std::uint32_t object = kNone;  // index into StepObjects; kNone for `order`
  DependencyKind kind = DependencyKind::order;
  Evidence evidence = Evidence::exact;
};

// Two ops that conflict and that the program left unordered.
struct Race {
  std::uint32_t first = 0, second = 0;
  std::uint32_t object = kNone;
  bool communicate = false;  // what both may be doing
};

struct Dependencies {
  std::vector<Dependency> all;  // ascending by `to`, then `from`, then `object`
  std::vector<Race> races;      // the first kMaxRaces
  std::uint64_t race_count = 0;
  bool complete = true;  // false where there were more than kMaxRaceCount races: nothing was looked for behind
};

inline constexpr std::size_t kMaxRaces = 100;
inline constexpr std::uint64_t kMaxRaceCount = 1'000'000;

struct DependencyInput {
  const StepAccesses& accesses;
  const HappensBefore& order;
  const StepObjects& objects;
  std::vector<std::uint32_t> event;  // per op: the event of a record or wait, or that a launch records, else kNone
  std::vector<std::uint32_t> event2 = {};  // per op: a second one that a launch records, else kNone; empty: none at all
  // Per object: where one of the step's own lies, in bytes; two of them that share some are in order for it. Empty:
  // each has memory of its own, and a plan is to keep to the order that there is (analyzer/plan/memory_plan.h).
  std::vector<std::uint64_t> place = {};
};

Dependencies find_dependencies(const DependencyInput& input);

// Two mappings may show the same memory at two addresses, so all objects of the kinds `mapped` and `external` count as
// one. The object under which accesses to `object` are compared.
std::vector<std::uint32_t> aliases(const StepObjects& objects);

}  // namespace nimble::analyzer
