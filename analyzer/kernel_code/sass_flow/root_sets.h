// Sets of roots, each kept once: a set is a number, and unions are remembered. Most values of a kernel have one of a
// few sets, so there are few, however many values there are. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace nimble::code::sass {

using Root = std::uint32_t;
using RootSet = std::uint32_t;

inline constexpr RootSet kNoRoots = 0;

class RootSets {
 public:
  RootSets() { id_of({}); }

  RootSet of(Root root) { return id_of({root}); }
  RootSet of(std::vector<Root> ascending) { return id_of(std::move(ascending)); }
  RootSet both(RootSet a, RootSet b);    // the union
  RootSet common(RootSet a, RootSet b);  // the intersection
  const std::vector<Root>& roots(RootSet set) const { return *sets_[set]; }
  bool has(RootSet set, Root root) const;
  // How many roots all sets hold together: what a flow that does not end would grow.
  std::size_t size() const { return size_; }

 private:
  RootSet id_of(std::vector<Root> roots);

  std::map<std::vector<Root>, RootSet> ids_;  // ascending
  std::vector<const std::vector<Root>*> sets_;
  std::unordered_map<std::uint64_t, RootSet> unions_, intersections_;
  std::size_t size_ = 0;
};

}  // namespace nimble::code::sass
