#include "analyzer/graph/transitive_reduction.h"

#include <algorithm>
#include <memory>

namespace nimble::analyzer {
namespace {

// What a node can be reached from: every node up to and including `floor - 1`, and more on some chains.
struct Reach {
  struct OnChain {
    std::uint32_t chain, node;  // the furthest node of the chain
  };
  std::uint32_t floor = 0;
  std::vector<OnChain> chains;  // ascending by chain; nodes from `floor` on

  bool contains(std::uint32_t chain, std::uint32_t node) const {
    if (node < floor) return true;
    auto found = std::lower_bound(chains.begin(), chains.end(), chain,
                                  [](const OnChain& entry, std::uint32_t wanted) { return entry.chain < wanted; });
    return found != chains.end() && found->chain == chain && found->node >= node;
  }
};

// Adds `node` and all that reaches it to `into`.
void join(Reach& into, const Reach& other, std::vector<Reach::OnChain>& scratch) {
  into.floor = std::max(into.floor, other.floor);
  scratch.clear();
  auto add = [&](Reach::OnChain entry) {
    if (entry.node >= into.floor) scratch.push_back(entry);
  };
  auto a = into.chains.begin();
  auto b = other.chains.begin();
  while (a != into.chains.end() || b != other.chains.end()) {
    if (b == other.chains.end() || (a != into.chains.end() && a->chain < b->chain)) {
      add(*a++);
    } else if (a == into.chains.end() || b->chain < a->chain) {
      add(*b++);
    } else {
      add({a->chain, std::max(a->node, b->node)});
      ++a;
      ++b;
    }
  }
  into.chains.swap(scratch);
}

void add_self(Reach& reach, std::uint32_t chain, std::uint32_t node) {
  auto at = std::lower_bound(reach.chains.begin(), reach.chains.end(), chain,
                             [](const Reach::OnChain& entry, std::uint32_t wanted) { return entry.chain < wanted; });
  if (at != reach.chains.end() && at->chain == chain)
    at->node = node;
  else
    reach.chains.insert(at, {chain, node});
}

}  // namespace

Dag transitive_reduction(const Dag& dag) {
  std::uint32_t n = dag.nodes();
  std::vector<Dag::Edge> kept;
  std::vector<std::unique_ptr<Reach>> reach(n);
  std::vector<std::uint32_t> chain(n), uses(n), tail;  // tail: the last node of each chain
  std::vector<Reach::OnChain> scratch;
  std::uint32_t floor = 0;        // just past the latest node that all before it reach
  std::uint32_t open_chains = 0;  // chains with a node from `floor` on
  for (std::uint32_t node = 0; node < n; ++node) uses[node] = static_cast<std::uint32_t>(dag.successors(node).size());

  for (std::uint32_t node = 0; node < n; ++node) {
    auto predecessors = dag.predecessors(node);
    std::unique_ptr<Reach> mine;
    std::uint32_t follows = n;
    for (auto p = predecessors.rbegin(); p != predecessors.rend(); ++p) {
      std::uint32_t from = *p;
      bool redundant = mine != nullptr && mine->contains(chain[from], from);
      if (!redundant) {
        kept.push_back({from, node});
        if (follows == n && tail[chain[from]] == from) follows = from;
      }
      bool last_use = --uses[from] == 0;
      if (!redundant && mine == nullptr)
        mine = last_use ? std::move(reach[from]) : std::make_unique<Reach>(*reach[from]);
      else if (!redundant)
        join(*mine, *reach[from], scratch);
      if (last_use) reach[from].reset();
    }
    if (mine == nullptr) mine = std::make_unique<Reach>();

    // All before it reach it if it is reached from the end of every chain that has continued since the floor.
    bool all = mine->floor == floor && mine->chains.size() == open_chains &&
               std::all_of(mine->chains.begin(), mine->chains.end(),
                           [&](const Reach::OnChain& entry) { return tail[entry.chain] == entry.node; });
    if (follows != n) {
      chain[node] = chain[follows];
      if (follows < floor) ++open_chains;
    } else {
      chain[node] = static_cast<std::uint32_t>(tail.size());
      tail.push_back(node);
      ++open_chains;
    }
    tail[chain[node]] = node;
    if (all) {
      floor = mine->floor = node + 1;
      open_chains = 0;
      mine->chains.clear();
    } else {
      add_self(*mine, chain[node], node);
    }
    if (uses[node] > 0) reach[node] = std::move(mine);
  }
  return Dag(n, std::move(kept));
}

}  // namespace nimble::analyzer
