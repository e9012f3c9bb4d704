#include "analyzer/order/access_order.h"

#include <algorithm>

namespace nimble::analyzer {
namespace {

// Whether two allocations of this kind may be two names for the same memory.
bool may_share_memory(MemoryKind memory) { return memory == MemoryKind::mapped || memory == MemoryKind::external; }

bool in_place(const DependencyInput& input, std::uint32_t object) {
  return !input.place.empty() && input.objects.objects[object].step_local;
}

// As aliases(); besides, objects whose place is given are all parts of one.
std::vector<std::uint32_t> aliases_in_place(const DependencyInput& input) {
  std::vector<std::uint32_t> result = aliases(input.objects);
  std::uint32_t first = kNone;
  for (std::uint32_t i = 0; i < result.size(); ++i) {
    if (!in_place(input, i)) continue;
    if (first == kNone) first = i;
    result[i] = first;
  }
  return result;
}

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

AccessOrder::AccessOrder(const DependencyInput& input, DependencyList& list)
    : input_(input),
      list_(list),
      alias_(aliases_in_place(input)),
      histories_(input.objects.objects.size()),
      epoch_(histories_.size(), 0),
      has_chance_(std::ranges::any_of(input.accesses.all, &Access::by_chance)),
      earlier_(has_chance_ ? histories_.size() : 0) {}

void AccessOrder::add(std::uint32_t op) {
  const auto accesses = input_.accesses.of(op);
  const std::uint32_t index = input_.accesses.ops[op].first;
  // Reads first: an op's own write must not hide the earlier writers from its read.
  for (bool writes : {false, true})
    for (std::size_t i = 0; i < accesses.size(); ++i)
      if (accesses[i].writes == writes) add(op, accesses[i], index + static_cast<std::uint32_t>(i));
}

void AccessOrder::add(std::uint32_t op, const Access& access, std::uint32_t index) {
  const std::uint32_t object = alias_[access.object];
  const bool mapped = may_share_memory(input_.objects.objects[access.object].memory);
  ByteRect rect = mapped ? ByteRect{0, ~std::uint64_t{0}, 0, 1} : access.rect;
  if (in_place(input_, access.object)) rect.begin += input_.place[access.object];
  if (has_chance_) {
    for (const Earlier& each : earlier_[object]) {
      const Access& other = input_.accesses.all[each.access];
      if (!access.by_chance && !other.by_chance) continue;
      if ((access.writes || other.writes) && overlap(each.rect, rect) && input_.order.ordered(each.op, op))
        add_order(each.op, op, access, {each.op, other.writes, other.reads, each.access});
    }
    earlier_[object].push_back({op, index, rect});
    if (access.by_chance) return;
  }
  ObjectHistory& history = histories_[object];
  if (epoch_[object] != now_) history.clear();
  epoch_[object] = now_;
  conflicts_.clear();
  history.add(op, index, rect, access.reads, access.writes, input_.order, conflicts_);
  for (const AccessConflict& conflict : conflicts_) {
    if (input_.order.ordered(conflict.op, op))
      add_order(conflict.op, op, access, conflict);
    else
      list_.add_race(conflict.op, op, access.object);
  }
}

void AccessOrder::add_order(std::uint32_t earlier, std::uint32_t op, const Access& access,
                            const AccessConflict& conflict) {
  const DependencyKind kind = conflict.wrote && access.reads    ? DependencyKind::read_after_write
                              : conflict.wrote && access.writes ? DependencyKind::write_after_write
                                                                : DependencyKind::write_after_read;
  list_.add(earlier, op, access.object, kind, weaker(access.evidence, input_.accesses.all[conflict.access].evidence));
}

}  // namespace nimble::analyzer
