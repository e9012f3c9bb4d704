#include "analyzer/order/dependencies.h"

#include <unordered_map>

#include "analyzer/base/text.h"
#include "analyzer/order/access_order.h"
#include "analyzer/order/communication_order.h"
#include "analyzer/order/dependency_list.h"

namespace nimble::analyzer {
namespace {

// Goes through the ops in program order, and orders each by its role. Keeps the barriers, records and waits itself.
class Finder {
 public:
  explicit Finder(const DependencyInput& input)
      : input_(input),
        order_(input.order),
        list_(order_, input.accesses.ops.size()),
        by_access_(input, list_),
        by_communication_(input, list_),
        barriers_(order_.streams()),
        accessing_(order_.streams()),
        hearing_(order_.streams()),
        collector_(order_.streams(), kNone),
        record_on_(order_.streams(), kNone),
        records_(order_.streams()),
        last_barrier_(order_.streams(), kNone) {}

  Dependencies run() {
    for (std::uint32_t op = 0; op < input_.accesses.ops.size(); ++op) {
      if (list_.too_many_races()) return list_.take(false);
      list_.begin();
      switch (role(op)) {
        case OpRole::accesses:
          add_accesses(op);
          break;
        case OpRole::barrier:
          add_barrier(op);
          break;
        case OpRole::record:
          add_record(op);
          break;
        case OpRole::wait:
          add_wait(op);
          break;
        case OpRole::none:
          break;
      }
      list_.finish(op, role(op));
    }
    return list_.take(true);
  }

 private:
  OpRole role(std::uint32_t op) const { return input_.accesses.ops[op].role; }

  void add_accesses(std::uint32_t op) {
    by_access_.add(op);
    by_communication_.add(op);
    const std::uint32_t s = order_.stream(op);
    if (input_.accesses.ops[op].tells) {
      add_after_all(op, Evidence::assumed);
      collector_[s] = op;
    }
    add_after_barriers(op);
    if (!input_.accesses.of(op).empty()) accessing_[s].push_back(op);
    if (input_.accesses.ops[op].hears) hearing_[s].push_back(op);
  }

  // Comes after everything before it that no earlier barrier has gathered; and, among that, only after what has no
  // successor yet that comes before it too.
  void add_barrier(std::uint32_t op) {
    gather(op, last_barrier_[order_.stream(op)], Evidence::assumed);
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      if (s == order_.stream(op)) continue;
      // Ops on other streams that are neither before this one nor, since they came earlier, after it.
      add_races(op, accessing_[s], s);
    }
    add_after_records(op, Evidence::assumed);  // it may tell an observer that these have happened
    by_communication_.add(op);
    add_after_barriers(op);
    std::uint32_t s = order_.stream(op);
    // An event that a launch records by itself comes true while the kernel runs: a wait for it says little.
    last_record_.erase(input_.event[op]);
    if (!input_.event2.empty()) last_record_.erase(input_.event2[op]);
    barriers_[s].push_back(op);
    last_barrier_[s] = collector_[s] = op;
    // On one stream everything later comes after it.
    if (order_.streams() == 1) by_access_.close();
  }

  void add_record(std::uint32_t op) {
    add_after_all(op, Evidence::exact);
    const std::uint32_t s = order_.stream(op);
    if (order_.streams() > 1) records_[s].push_back(op);
    collector_[s] = record_on_[s] = op;
    last_record_[input_.event[op]] = op;
  }

  void add_wait(std::uint32_t op) {
    auto found = last_record_.find(input_.event[op]);
    if (found != last_record_.end()) list_.add_order(found->second, op, Evidence::exact);
  }

  // An observer that learns that the op is done may conclude that everything is done which the program had put before
  // it.
  void add_after_all(std::uint32_t op, Evidence evidence) {
    gather(op, collector_[order_.stream(op)], evidence);
    add_after_records(op, evidence);
  }

  void add_after_records(std::uint32_t op, Evidence evidence) {
    const std::uint32_t s = order_.stream(op);
    // Events of one stream come true in order, and a barrier in between does not wait for the one before it.
    if (record_on_[s] != kNone) list_.add_order(record_on_[s], op, evidence);
    // Nor before an event of another stream that the program has put before it.
    for (std::uint32_t other = 0; other < order_.streams(); ++other) {
      if (other == s) continue;
      const auto& records = records_[other];
      const std::size_t before = count_before(order_, op, records, other);
      if (before == 0) continue;
      const std::uint32_t last = records[before - 1];
      if (record_on_[s] == kNone || !order_.ordered(last, record_on_[s])) list_.add_order(last, op, evidence);
    }
  }

  void gather(std::uint32_t op, std::uint32_t previous, Evidence evidence) {
    if (previous != kNone) list_.add_order(previous, op, evidence_of(previous, evidence));
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      std::uint32_t from = previous == kNone ? 0 : order_.clock(previous, s);
      std::uint32_t to = order_.clock(op, s);
      for (std::uint32_t position = from; position < to; ++position) {
        std::uint32_t earlier = order_.ops_on(s)[position];
        if (earlier == op || earlier == previous) continue;
        if (role(earlier) != OpRole::accesses && role(earlier) != OpRole::barrier) continue;
        const std::uint32_t next = list_.successor(earlier);
        if (next != kNone && order_.ordered(next, op)) continue;
        list_.add_order(earlier, op, evidence_of(earlier, evidence));
      }
    }
  }

  Evidence evidence_of(std::uint32_t op, Evidence other) const {
    return role(op) == OpRole::barrier ? Evidence::assumed : other;
  }

  // Comes after the last barrier of every stream that is before it, unless that is implied; and after the last op that
  // may have waited for others, since it may have been told something about anything.
  void add_after_barriers(std::uint32_t op) {
    const bool touches = role(op) == OpRole::accesses && input_.accesses.ops[op].count > 0;
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      if (touches) add_races(op, barriers_[s], s);
      add_after_last(op, barriers_[s], s);
      add_after_last(op, hearing_[s], s);
    }
  }

  void add_after_last(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::uint32_t s) {
    const std::size_t before = count_before(order_, op, ops, s);
    if (before == 0) return;
    const std::uint32_t last = ops[before - 1];
    if (!list_.implied(last)) list_.add_order(last, op, Evidence::assumed);
  }

  // With the ops of stream `s` that are not before `op`: the first is named, the others are counted.
  void add_races(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::uint32_t s) {
    const std::size_t before = count_before(order_, op, ops, s);
    if (before == ops.size()) return;
    list_.add_race(ops[before], op, kNone);
    list_.count_races(ops.size() - before - 1);
  }

  const DependencyInput& input_;
  const HappensBefore& order_;
  DependencyList list_;
  AccessOrder by_access_;
  CommunicationOrder by_communication_;
  // Per stream, in order.
  std::vector<std::vector<std::uint32_t>> barriers_, accessing_, hearing_;
  std::vector<std::uint32_t> collector_;             // per stream: the last op that comes after all before it
  std::vector<std::uint32_t> record_on_;             // per stream: the last record
  std::vector<std::vector<std::uint32_t>> records_;  // per stream, in order, if there are several streams
  std::vector<std::uint32_t> last_barrier_;          // per stream
  std::unordered_map<std::uint32_t, std::uint32_t> last_record_;  // by event
};

}  // namespace

std::string races_text(const Dependencies& dependencies) {
  return (dependencies.complete ? "" : "more than ") + plural(dependencies.race_count, "pair");
}

Dependencies find_dependencies(const DependencyInput& input) { return Finder(input).run(); }

}  // namespace nimble::analyzer
