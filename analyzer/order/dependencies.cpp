#include "analyzer/order/dependencies.h"

#include <algorithm>
#include <unordered_map>

#include "analyzer/order/object_history.h"

namespace nimble::analyzer {
namespace {

// Whether two allocations of this kind may be two names for the same memory.
bool may_share_memory(MemoryKind memory) { return memory == MemoryKind::mapped || memory == MemoryKind::external; }

class Finder {
 public:
  explicit Finder(const DependencyInput& input)
      : input_(input),
        order_(input.order),
        alias_(aliases(input)),
        histories_(input.objects.objects.size()),
        epoch_(histories_.size(), 0),
        successor_(input.accesses.ops.size(), kNone),
        barriers_(order_.streams()),
        accessing_(order_.streams()),
        hearing_(order_.streams()),
        communicating_(order_.streams()),
        waiting_(order_.streams()),
        over_shared_(order_.streams()),
        sharing_(order_.streams()),
        collector_(order_.streams(), kNone),
        record_on_(order_.streams(), kNone),
        records_(order_.streams()),
        last_barrier_(order_.streams(), kNone) {}

  Dependencies run() {
    for (std::uint32_t op = 0; op < input_.accesses.ops.size(); ++op) {
      if (result_.race_count > kMaxRaceCount) {
        result_.complete = false;
        break;
      }
      first_new_ = result_.all.size();
      switch (input_.accesses.ops[op].role) {
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
      finish(op);
    }
    return std::move(result_);
  }

 private:
  void add_accesses(std::uint32_t op) {
    auto accesses = input_.accesses.of(op);
    std::uint32_t index = input_.accesses.ops[op].first;
    // Reads first: an op's own write must not hide from its read who wrote before.
    for (bool writes : {false, true})
      for (std::size_t i = 0; i < accesses.size(); ++i)
        if (accesses[i].writes == writes) add_access(op, accesses[i], index + static_cast<std::uint32_t>(i));
    add_communication(op);
    const std::uint32_t s = order_.stream(op);
    if (input_.accesses.ops[op].tells) {
      behind_all(op, Evidence::assumed);
      collector_[s] = op;
    }
    behind_barriers(op);
    if (!accesses.empty()) accessing_[s].push_back(op);
    if (input_.accesses.ops[op].hears) hearing_[s].push_back(op);
  }

  void add_access(std::uint32_t op, const Access& access, std::uint32_t index) {
    std::uint32_t object = alias_[access.object];
    bool mapped = may_share_memory(input_.objects.objects[access.object].memory);
    Region region = mapped ? Region{0, ~std::uint64_t{0}, 0, 1} : access.region;
    if (in_place(access.object)) region.begin += input_.place[access.object];
    ObjectHistory& history = histories_[object];
    if (epoch_[object] != now_) history.clear();
    epoch_[object] = now_;
    conflicts_.clear();
    history.add(op, index, region, access.reads, access.writes, order_, conflicts_);
    for (const AccessConflict& conflict : conflicts_) {
      if (!order_.ordered(conflict.op, op)) {
        race(conflict.op, op, access.object);
        continue;
      }
      DependencyKind kind = conflict.wrote && access.reads    ? DependencyKind::read_after_write
                            : conflict.wrote && access.writes ? DependencyKind::write_after_write
                                                              : DependencyKind::write_after_read;
      add(conflict.op, op, access.object, kind, weaker(access.evidence, input_.accesses.all[conflict.access].evidence));
    }
  }

  // Who may be talking to others comes behind the last on each stream that may, too. Where memory which others reach is
  // touched, what is said over it may be about more such memory.
  void add_communication(std::uint32_t op) {
    const OpAccesses& mine = input_.accesses.ops[op];
    const bool communicates = mine.communicates != Communicates::no;
    const std::uint32_t own = order_.stream(op);
    if (communicates || mine.blocks_wait) {
      for (std::uint32_t s = 0; s < order_.streams(); ++s)
        behind_last(op, waiting_[s], first_behind(op, waiting_[s], s));
      waiting_[own].push_back(op);
    }
    if (!communicates && !mine.shares) return;
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      if (!communicates) {
        behind_last(op, over_shared_[s], first_behind(op, over_shared_[s], s));
        continue;
      }
      const auto& others = communicating_[s];
      const std::size_t beyond = first_behind(op, others, s);
      if (beyond < others.size()) {
        race(others[beyond], op, kNone, true);
        result_.race_count += others.size() - beyond - 1;
      }
      if (!mine.shares) continue;
      // What an earlier one on its own stream has come behind already is implied.
      const std::size_t from = over_shared_[own].empty() ? 0 : first_behind(over_shared_[own].back(), sharing_[s], s);
      for (std::size_t i = from; i < first_behind(op, sharing_[s], s); ++i) add_order(sharing_[s][i], op);
    }
    if (communicates) communicating_[own].push_back(op);
    if (mine.shares) (communicates ? over_shared_ : sharing_)[own].push_back(op);
  }

  // The first in a list of ops of stream `s` that the program had not put before `op`.
  std::size_t first_behind(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::uint32_t s) const {
    return static_cast<std::size_t>(
        std::partition_point(ops.begin(), ops.end(),
                             [&](std::uint32_t other) { return order_.position(other) <= order_.clock(op, s); }) -
        ops.begin());
  }

  void behind_last(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::size_t beyond) {
    if (beyond > 0) add_order(ops[beyond - 1], op);
  }

  // As well known as it is that they talk, or wait.
  void add_order(std::uint32_t from, std::uint32_t to) {
    Evidence evidence = Evidence::exact;
    for (std::uint32_t op : {from, to}) {
      const Communicates communicates = input_.accesses.ops[op].communicates;
      if (input_.accesses.ops[op].blocks_wait) evidence = weaker(evidence, Evidence::declared);
      if (communicates == Communicates::by_rule) evidence = weaker(evidence, Evidence::declared);
      if (communicates == Communicates::by_memory) evidence = Evidence::assumed;
    }
    add(from, to, kNone, DependencyKind::order, evidence);
  }

  // After everything before it that no earlier barrier has gathered; and, of these, only what has no successor yet that
  // comes before it too.
  void add_barrier(std::uint32_t op) {
    gather(op, last_barrier_[order_.stream(op)], Evidence::assumed);
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      if (s == order_.stream(op)) continue;
      // Ops on other streams that are neither before this one nor, since they came earlier, after it.
      const auto& ops = accessing_[s];
      auto beyond = std::partition_point(
          ops.begin(), ops.end(), [&](std::uint32_t other) { return order_.position(other) <= order_.clock(op, s); });
      if (beyond == ops.end()) continue;
      race(*beyond, op, kNone);
      result_.race_count += static_cast<std::uint64_t>(ops.end() - beyond) - 1;
    }
    behind_records(op, Evidence::assumed);  // it may tell somebody that these are true
    add_communication(op);
    behind_barriers(op);
    std::uint32_t s = order_.stream(op);
    // An event that a launch records by itself comes true while the kernel runs: a wait for it says little.
    last_record_.erase(input_.event[op]);
    if (!input_.event2.empty()) last_record_.erase(input_.event2[op]);
    barriers_[s].push_back(op);
    last_barrier_[s] = collector_[s] = op;
    // On one stream everything later comes after it: what was open before it is closed.
    if (order_.streams() == 1) ++now_;
  }

  void add_record(std::uint32_t op) {
    behind_all(op, Evidence::exact);
    const std::uint32_t s = order_.stream(op);
    if (order_.streams() > 1) records_[s].push_back(op);
    collector_[s] = record_on_[s] = op;
    last_record_[input_.event[op]] = op;
  }

  // Whoever learns that it is done may take it that all is done which the program had put before it.
  void behind_all(std::uint32_t op, Evidence evidence) {
    gather(op, collector_[order_.stream(op)], evidence);
    behind_records(op, evidence);
  }

  void behind_records(std::uint32_t op, Evidence evidence) {
    const std::uint32_t s = order_.stream(op);
    // Events of one stream come true in order, and a barrier in between does not wait for the one before it.
    if (record_on_[s] != kNone) add(record_on_[s], op, kNone, DependencyKind::order, evidence);
    // Nor before an event of another stream that the program has put before it.
    for (std::uint32_t other = 0; other < order_.streams(); ++other) {
      if (other == s) continue;
      const auto& records = records_[other];
      auto beyond = std::partition_point(records.begin(), records.end(), [&](std::uint32_t record) {
        return order_.position(record) <= order_.clock(op, other);
      });
      if (beyond == records.begin()) continue;
      std::uint32_t last = *std::prev(beyond);
      if (record_on_[s] == kNone || !order_.ordered(last, record_on_[s]))
        add(last, op, kNone, DependencyKind::order, evidence);
    }
  }

  void add_wait(std::uint32_t op) {
    auto found = last_record_.find(input_.event[op]);
    if (found != last_record_.end()) add(found->second, op, kNone, DependencyKind::order, Evidence::exact);
  }

  void gather(std::uint32_t op, std::uint32_t previous, Evidence evidence) {
    if (previous != kNone) add(previous, op, kNone, DependencyKind::order, evidence_of(previous, evidence));
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      std::uint32_t from = previous == kNone ? 0 : order_.clock(previous, s);
      std::uint32_t to = order_.clock(op, s);
      for (std::uint32_t position = from; position < to; ++position) {
        std::uint32_t earlier = order_.ops_on(s)[position];
        OpRole role = input_.accesses.ops[earlier].role;
        if (earlier == op || earlier == previous) continue;
        if (role == OpRole::none || role == OpRole::record || role == OpRole::wait) continue;
        std::uint32_t next = successor_[earlier];
        if (next != kNone && order_.ordered(next, op)) continue;
        add(earlier, op, kNone, DependencyKind::order, evidence_of(earlier, evidence));
      }
    }
  }

  bool in_place(std::uint32_t object) const {
    return !input_.place.empty() && input_.objects.objects[object].step_local;
  }

  // As aliases(); and those whose place is given are all pieces of one.
  static std::vector<std::uint32_t> aliases(const DependencyInput& input) {
    std::vector<std::uint32_t> result = analyzer::aliases(input.objects);
    std::uint32_t first = kNone;
    for (std::uint32_t i = 0; i < result.size() && !input.place.empty(); ++i) {
      if (!input.objects.objects[i].step_local) continue;
      if (first == kNone) first = i;
      result[i] = first;
    }
    return result;
  }

  Evidence evidence_of(std::uint32_t op, Evidence other) const {
    return input_.accesses.ops[op].role == OpRole::barrier ? Evidence::assumed : other;
  }

  // Behind the last barrier of every stream that comes before it, unless it is behind an op that is; and behind the
  // last that may have waited for others, since they may have said something about anything.
  void behind_barriers(std::uint32_t op) {
    const bool touches = input_.accesses.ops[op].role == OpRole::accesses && input_.accesses.ops[op].count > 0;
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      const auto& barriers = barriers_[s];
      const std::size_t beyond = first_behind(op, barriers, s);
      if (beyond < barriers.size() && touches) {
        race(barriers[beyond], op, kNone);
        result_.race_count += barriers.size() - beyond - 1;
      }
      behind_unless_implied(op, barriers, beyond);
      behind_unless_implied(op, hearing_[s], first_behind(op, hearing_[s], s));
    }
  }

  void behind_unless_implied(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::size_t beyond) {
    if (beyond == 0) return;
    const std::uint32_t last = ops[beyond - 1];
    const bool implied =
        std::any_of(result_.all.begin() + static_cast<std::ptrdiff_t>(first_new_), result_.all.end(),
                    [&](const Dependency& known) { return known.from == last || order_.ordered(last, known.from); });
    if (!implied) add(last, op, kNone, DependencyKind::order, Evidence::assumed);
  }

  void add(std::uint32_t from, std::uint32_t to, std::uint32_t object, DependencyKind kind, Evidence evidence) {
    result_.all.push_back({from, to, object, kind, evidence});
  }

  void race(std::uint32_t first, std::uint32_t second, std::uint32_t object, bool communicate = false) {
    ++result_.race_count;
    if (result_.races.size() < kMaxRaces) result_.races.push_back({first, second, object, communicate});
  }

  // Sorts what this op added, and keeps the strongest kind for each pair and object; `order` where there is no other.
  void finish(std::uint32_t op) {
    auto first = result_.all.begin() + static_cast<std::ptrdiff_t>(first_new_);
    std::sort(first, result_.all.end(), [](const Dependency& a, const Dependency& b) {
      if (a.from != b.from) return a.from < b.from;
      if (a.object != b.object) return a.object < b.object;
      return a.kind != b.kind ? a.kind < b.kind : a.evidence < b.evidence;
    });
    result_.all.erase(std::unique(first, result_.all.end(),
                                  [](const Dependency& a, const Dependency& b) {
                                    return a.from == b.from &&
                                           (a.object == b.object || b.kind == DependencyKind::order);
                                  }),
                      result_.all.end());
    OpRole role = input_.accesses.ops[op].role;
    if (role == OpRole::record || role == OpRole::wait) return;
    for (std::size_t i = first_new_; i < result_.all.size(); ++i) successor_[result_.all[i].from] = op;
  }

  const DependencyInput& input_;
  const HappensBefore& order_;
  std::vector<std::uint32_t> alias_;
  std::vector<ObjectHistory> histories_;
  std::vector<std::uint64_t> epoch_;      // per object: the value of now_ for which its history holds
  std::uint64_t now_ = 0;                 // counts barriers
  std::vector<std::uint32_t> successor_;  // per op: some op that depends on it, no record or wait
  std::vector<std::vector<std::uint32_t>> barriers_, accessing_, hearing_;  // per stream, in order
  // Likewise: those that may communicate; these, and those whose blocks wait for each other; of the former, those that
  // touch memory which others reach; others that do.
  std::vector<std::vector<std::uint32_t>> communicating_, waiting_, over_shared_, sharing_;
  std::vector<std::uint32_t> collector_,
      record_on_;  // per stream: the last that is behind all before it; the last record
  std::vector<std::vector<std::uint32_t>> records_;               // per stream, in order, where there are several
  std::vector<std::uint32_t> last_barrier_;                       // per stream
  std::unordered_map<std::uint32_t, std::uint32_t> last_record_;  // by event
  std::vector<AccessConflict> conflicts_;
  std::size_t first_new_ = 0;
  Dependencies result_;
};

}  // namespace

std::vector<std::uint32_t> aliases(const StepObjects& objects) {
  std::vector<std::uint32_t> result(objects.objects.size());
  std::uint32_t mapped = kNone;
  for (std::uint32_t i = 0; i < result.size(); ++i) {
    result[i] = i;
    if (!may_share_memory(objects.objects[i].memory)) continue;
    if (mapped == kNone) mapped = i;
    result[i] = mapped;
  }
  return result;
}

Dependencies find_dependencies(const DependencyInput& input) { return Finder(input).run(); }

}  // namespace nimble::analyzer
