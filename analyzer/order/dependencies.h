// Which ops of the step must stay in order, because they touch the same bytes and one of them writes.
//
// One pass over the ops in program order, with the last writers and the readers since of every part of every object.
// Ops that touch everything (barriers) come after all that is still open, and before all that follows. Ops that may be
// communicating keep their order, too, and an op that others may take as a sign that all before it is done comes after
// all of that (analyzer/order/communication.h). A dependency that two others imply through a common op may be left out;
// none is added that the program had not established. Pairs that the program did not order, although they conflict or
// may both be communicating, are races, and are counted.
//
// The result owns its lists. No errors.
#pragma once

#include <cstdint>
#include <string>
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

// Two ops that conflict or communicate, and that the program left unordered.
struct Race {
  std::uint32_t first = 0, second = 0;
  std::uint32_t object = kNone;
  bool communicate = false;  // both may be communicating
};

struct Dependencies {
  std::vector<Dependency> all;  // ascending by `to`, then `from`, then `object`
  std::vector<Race> races;      // the first kMaxRaces
  std::uint64_t race_count = 0;
  bool complete = true;  // false after more than kMaxRaceCount races: the ops after those were not looked at
};

inline constexpr std::size_t kMaxRaces = 100;
inline constexpr std::uint64_t kMaxRaceCount = 1'000'000;

struct DependencyInput {
  const StepAccesses& accesses;
  const HappensBefore& order;
  const StepObjects& objects;
  std::vector<std::uint32_t> event;  // per op: the event of a record or wait, or that a launch records, else kNone
  std::vector<std::uint32_t> event2 = {};  // per op: a second one that a launch records, else kNone; empty: none at all
  // Per object: the address of one of the step's own; ops are ordered by what they share there. Empty: each has memory
  // of its own, and a plan has to keep to the order that there is (analyzer/plan/memory_layout.h).
  std::vector<std::uint64_t> place = {};
};

Dependencies find_dependencies(const DependencyInput& input);

// "1 pair", "more than 1000005 pairs": how many races there are.
std::string races_text(const Dependencies& dependencies);

// Per object: the one under which accesses to it are compared. Two mappings may show the same memory at two addresses,
// so all objects of the kinds `mapped` and `external` count as one.
std::vector<std::uint32_t> aliases(const StepObjects& objects);

}  // namespace nimble::analyzer
