#include "analyzer/order/dependency_list.h"

#include <algorithm>
#include <utility>

namespace nimble::analyzer {

bool DependencyList::implied(std::uint32_t earlier) const {
  return std::any_of(
      result_.all.begin() + static_cast<std::ptrdiff_t>(first_new_), result_.all.end(),
      [&](const Dependency& known) { return known.from == earlier || order_.ordered(earlier, known.from); });
}

void DependencyList::finish(std::uint32_t op, OpRole role) {
  auto first = result_.all.begin() + static_cast<std::ptrdiff_t>(first_new_);
  std::sort(first, result_.all.end(), [](const Dependency& a, const Dependency& b) {
    if (a.from != b.from) return a.from < b.from;
    if (a.object != b.object) return a.object < b.object;
    return a.kind != b.kind ? a.kind < b.kind : a.evidence < b.evidence;
  });
  result_.all.erase(std::unique(first, result_.all.end(),
                                [](const Dependency& a, const Dependency& b) {
                                  return a.from == b.from && (a.object == b.object || b.kind == DependencyKind::order);
                                }),
                    result_.all.end());
  if (role == OpRole::record || role == OpRole::wait) return;
  for (std::size_t i = first_new_; i < result_.all.size(); ++i) successor_[result_.all[i].from] = op;
}

void DependencyList::add_race(std::uint32_t first, std::uint32_t second, std::uint32_t object, bool communicate) {
  ++result_.race_count;
  if (result_.races.size() < kMaxRaces) result_.races.push_back({first, second, object, communicate});
}

Dependencies DependencyList::take(bool complete) {
  result_.complete = complete;
  return std::move(result_);
}

std::size_t count_before(const HappensBefore& order, std::uint32_t op, std::span<const std::uint32_t> ops,
                         std::uint32_t s) {
  return static_cast<std::size_t>(
      std::partition_point(ops.begin(), ops.end(),
                           [&](std::uint32_t other) { return order.position(other) <= order.clock(op, s); }) -
      ops.begin());
}

}  // namespace nimble::analyzer
