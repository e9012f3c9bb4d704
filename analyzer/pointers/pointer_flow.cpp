// What has happened to pointers in memory before the step and in the repeat before, and the answers to questions.
#include "analyzer/pointers/pointer_flow.h"

#include <algorithm>
#include <utility>

namespace nimble::analyzer {

PointersInMemory::PointersInMemory(const Trace& trace, const ObjectTable& table, Step step, const Rules& rules,
                                   const Observations* seen)
    : trace_(trace),
      table_(table),
      step_(std::move(step)),
      facts_(trace, table, step_.calls),
      flows_(trace, rules, seen),
      seen_(seen),
      completion_(trace),
      taints_(trace),
      now_is_{std::vector<std::uint8_t>(step_.calls.size(), 0), std::vector<std::vector<Followed>>(step_.calls.size())},
      compared_(step_.calls.size(), 0),
      by_sight_(step_.calls.size(), 0) {}

void PointersInMemory::before_the_step() {
  const auto& calls = step_.calls;
  facts_.prepare();
  taints_.prepare(table_.objects().size(), calls.front());
  if (seen_ != nullptr && seen_->any()) completion_.order_before(calls.front());
  for (std::uint32_t index = 0; index < calls.front(); ++index) {
    if (index < step_.repeats.size() && step_.repeats[index] != 0) continue;
    // A node of a graph has not run: what it would overwrite may still be there.
    taints_.set_clearing(!is_node_of_a_graph(trace_.calls[index]));
    outside(index);
  }
  // Nor need a graph have run before, and the program may fill memory anew before each launch.
  taints_.set_clearing(
      std::ranges::none_of(calls, [&](std::uint32_t call) { return is_node_of_a_graph(trace_.calls[call]); }));
  repeat_before();
  taints_.set_clearing(true);
}

// Goes through the step as if it were the one before, until it leaves in memory what it found there.
void PointersInMemory::repeat_before() {
  const std::size_t ops = step_.calls.size();
  Outcome all_known{std::vector<std::uint8_t>(ops, 1), std::vector<std::vector<Followed>>(ops)};
  outcome_ = step_.before.known.empty() ? &all_known : &step_.before;
  constexpr int kMostRounds = 4;
  for (int round = 0;; ++round) {
    const std::map<std::uint32_t, Contents> found = contents_.all();
    for (std::uint32_t op = 0; op < ops; ++op) inside(op);
    contents_.end_step([&](std::uint32_t object) { return facts_.born_in_step(object); });
    taints_.begin_step(facts_, table_.objects());
    if (contents_.all() == found) break;
    if (round < kMostRounds) continue;
    for (const auto& [object, contents] : contents_.all()) taints_.taint(object, kByKernel);
    contents_.forget();
    break;
  }
  outcome_ = &now_is_;
}

void PointersInMemory::catch_up() {
  if (!started_) before_the_step();
  started_ = true;
  for (; done_ < now_; ++done_) inside(done_);
}

std::string_view PointersInMemory::doubt(std::uint32_t object) const {
  const Object& known = table_.objects()[object];
  if (PointerFacts::host_fills(known.memory)) return kByHost;
  const std::uint32_t slot = facts_.slot(object);
  if (const Contents* found = contents_.find(slot); found != nullptr && found->unknown) return found->why;
  return taints_.why(slot, known.birth);
}

bool PointersInMemory::may_hold_pointers(std::uint32_t object) const {
  return !doubt(object).empty() || contents_.holds_pointers(facts_.slot(object));
}

void PointersInMemory::compare_fillers(std::uint32_t object) {
  if (const Contents* found = contents_.find(facts_.slot(object)))
    for (const std::uint32_t filler : found->fillers) compared_[filler] = 1;
}

bool PointersInMemory::visit(std::uint32_t object, std::string& why) {
  catch_up();
  visited_.insert(facts_.slot(object));
  if (const std::string_view unclear = doubt(object); !unclear.empty()) {
    why = unclear;
    return false;
  }
  const Contents* found = contents_.find(facts_.slot(object));
  if (found == nullptr) return true;
  compare_fillers(object);
  carries_ |= found->carried();
  return true;
}

bool PointersInMemory::filled_by_step(std::uint32_t object, std::string& why) {
  const Object& known = table_.objects()[object];
  const auto& filled = contents(object).filled;
  // Nothing can have filled what the step has allocated itself before that.
  const bool all = filled.size() == 1 && filled.begin()->first == 0 && filled.begin()->second >= known.size;
  if (facts_.born_in_step(object) || (all && known.memory != MemoryKind::mapped && !contents(object).carried()))
    return true;
  why = kNotFilled;
  return false;
}

bool PointersInMemory::fresh(std::uint32_t object, std::string& why) {
  catch_up();
  if (doubt(object).empty() && !filled_by_step(object, why)) return false;
  return visit(object, why);
}

bool PointersInMemory::plain(std::uint32_t object, std::string& why) {
  if (!fresh(object, why)) return false;
  const Contents& there = contents(object);
  if (there.places.empty() && there.somewhere.empty()) return true;
  why = kPointers;
  return false;
}

bool PointersInMemory::table(std::uint32_t object, Pointee pointee, std::vector<std::uint32_t>& found,
                             std::string& why) {
  if (!fresh(object, why)) return false;
  const Contents& there = contents(object);
  const std::vector<std::uint32_t> placed = there.placed();
  std::set<std::uint32_t> targets(placed.begin(), placed.end());
  for (const std::uint32_t id : there.somewhere) {
    const auto& bundle = contents_.objects_of(id);
    targets.insert(bundle.begin(), bundle.end());
  }
  PointerFlow flow;
  flow.from = flow.to = pointee != Pointee::fractions;
  for (const std::uint32_t target : targets) {
    found.push_back(target);
    now_is_.followed[now_].push_back({target, flow});
  }
  return true;
}

bool PointersInMemory::reachable(std::span<const std::uint32_t> from, std::vector<std::uint32_t>& found,
                                 std::string& why) {
  constexpr std::size_t kMostReached = 128;
  std::vector<std::uint32_t> open(from.begin(), from.end());
  std::set<std::uint32_t> seen(from.begin(), from.end()), unpacked;
  const std::size_t most = found.size() + kMostReached;
  const auto reach = [&](std::uint32_t target) {
    if (!seen.insert(target).second) return;
    open.push_back(target);
    found.push_back(target);
    now_is_.followed[now_].push_back({target, {true, true, true, true}});
  };
  while (!open.empty()) {
    const std::uint32_t next = open.back();
    open.pop_back();
    if (!visit(next, why)) return false;
    const Contents* known = contents_.find(facts_.slot(next));
    if (known == nullptr) continue;
    for (const auto& [at, place] : known->places) reach(place.object);
    for (const std::uint32_t id : known->somewhere)
      if (unpacked.insert(id).second)
        for (const std::uint32_t target : contents_.objects_of(id)) reach(target);
    if (found.size() <= most) continue;
    why = kTooMuch;
    return false;
  }
  return true;
}

}  // namespace nimble::analyzer
