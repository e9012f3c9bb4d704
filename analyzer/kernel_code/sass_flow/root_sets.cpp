#include "analyzer/kernel_code/sass_flow/root_sets.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nimble::code::sass {

RootSet RootSets::id_of(std::vector<Root> roots) {
  const auto [found, is_new] = ids_.emplace(std::move(roots), static_cast<RootSet>(sets_.size()));
  if (is_new) {
    sets_.push_back(&found->first);
    size_ += found->first.size();
  }
  return found->second;
}

RootSet RootSets::both(RootSet a, RootSet b) {
  if (a == b || b == kNoRoots) return a;
  if (a == kNoRoots) return b;
  if (a > b) std::swap(a, b);
  const auto [known, is_new] = unions_.emplace(std::uint64_t{a} << 32 | b, kNoRoots);
  if (!is_new) return known->second;
  std::vector<Root> roots;
  std::set_union(sets_[a]->begin(), sets_[a]->end(), sets_[b]->begin(), sets_[b]->end(), std::back_inserter(roots));
  return unions_[std::uint64_t{a} << 32 | b] = id_of(std::move(roots));
}

RootSet RootSets::common(RootSet a, RootSet b) {
  if (a == b) return a;
  if (a == kNoRoots || b == kNoRoots) return kNoRoots;
  if (a > b) std::swap(a, b);
  const auto [known, is_new] = intersections_.emplace(std::uint64_t{a} << 32 | b, kNoRoots);
  if (!is_new) return known->second;
  std::vector<Root> roots;
  std::set_intersection(sets_[a]->begin(), sets_[a]->end(), sets_[b]->begin(), sets_[b]->end(),
                        std::back_inserter(roots));
  return intersections_[std::uint64_t{a} << 32 | b] = id_of(std::move(roots));
}

bool RootSets::has(RootSet set, Root root) const {
  return std::binary_search(sets_[set]->begin(), sets_[set]->end(), root);
}

}  // namespace nimble::code::sass
