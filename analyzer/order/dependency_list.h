// The dependencies and races that have been found so far, added op by op in program order.
//
// Refers to the program's order, which must outlive it. One thread. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/order/dependencies.h"
#include "analyzer/step/happens_before.h"

namespace nimble::analyzer {

class DependencyList {
 public:
  DependencyList(const HappensBefore& order, std::size_t ops) : order_(order), successor_(ops, kNone) {}

  // Op `op` is next: all that is added until finish() leads to it.
  void begin() { first_new_ = result_.all.size(); }
  void add(std::uint32_t from, std::uint32_t to, std::uint32_t object, DependencyKind kind, Evidence evidence) {
    result_.all.push_back({from, to, object, kind, evidence});
  }
  void add_order(std::uint32_t from, std::uint32_t to, Evidence evidence) {
    add(from, to, kNone, DependencyKind::order, evidence);
  }
  // Whether the op at hand already comes after `earlier`, by what was added for it.
  bool implied(std::uint32_t earlier) const;
  // Sorts what was added for the op, and keeps the strongest kind for each pair and object; `order` only if there is no
  // other.
  void finish(std::uint32_t op, OpRole role);

  void add_race(std::uint32_t first, std::uint32_t second, std::uint32_t object, bool communicate = false);
  // Races that are only counted.
  void count_races(std::uint64_t more) { result_.race_count += more; }
  bool too_many_races() const { return result_.race_count > kMaxRaceCount; }

  // Some op that depends on `op` and is not a record or a wait; kNone if there is none yet.
  std::uint32_t successor(std::uint32_t op) const { return successor_[op]; }

  // `complete`: whether all ops were looked at.
  Dependencies take(bool complete);

 private:
  const HappensBefore& order_;
  std::vector<std::uint32_t> successor_;
  std::size_t first_new_ = 0;
  Dependencies result_;
};

// How many ops of the list, all on stream `s` and in order, the program has put before `op`.
std::size_t count_before(const HappensBefore& order, std::uint32_t op, std::span<const std::uint32_t> ops,
                         std::uint32_t s);

}  // namespace nimble::analyzer
