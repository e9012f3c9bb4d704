// K. Cooper, T. Harvey and K. Kennedy, A Simple, Fast Dominance Algorithm, 2001.
#include "analyzer/kernel_code/sass_expressions/dominators.h"

#include <utility>

namespace nimble::code::sass {
namespace {

// Blocks in reverse postorder, from the first blocks of all functions on.
std::vector<std::uint32_t> reverse_postorder(const ControlFlow& flow) {
  const auto count = static_cast<std::uint32_t>(flow.blocks.size());
  std::vector<std::vector<std::uint32_t>> to(count);
  for (std::uint32_t block = 0; block < count; ++block)
    for (const Block::From& from : flow.blocks[block].from) to[from.block].push_back(block);
  std::vector<std::uint8_t> seen(count);
  std::vector<std::uint32_t> order;
  for (const Function& function : flow.functions) {
    if (std::exchange(seen[function.entry], 1)) continue;
    std::vector<std::pair<std::uint32_t, std::size_t>> path{{function.entry, 0}};
    while (!path.empty()) {
      auto& [block, next] = path.back();
      if (next == to[block].size()) {
        order.push_back(block);
        path.pop_back();
        continue;
      }
      const std::uint32_t target = to[block][next++];
      if (!std::exchange(seen[target], 1)) path.emplace_back(target, 0);
    }
  }
  return {order.rbegin(), order.rend()};
}

}  // namespace

Dominators::Dominators(const ControlFlow& flow)
    : immediate_(flow.blocks.size(), kNoBlock), depth_(flow.blocks.size(), 0) {
  const std::vector<std::uint32_t> order = reverse_postorder(flow);
  std::vector<std::uint32_t> place(flow.blocks.size(), kNoBlock);
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  const auto is_entry = [&](std::uint32_t block) { return block == flow.functions[flow.blocks[block].function].entry; };
  std::vector<std::uint32_t> over(flow.blocks.size(), kNoBlock);  // an entry's is itself
  for (const Function& function : flow.functions) over[function.entry] = function.entry;
  const auto common = [&](std::uint32_t a, std::uint32_t b) {
    while (a != b) {
      while (place[a] > place[b]) a = over[a];
      while (place[b] > place[a]) b = over[b];
      // Two functions' first blocks have nothing in common.
      if (a != b && over[a] == a && over[b] == b) return kNoBlock;
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::uint32_t block : order) {
      if (is_entry(block)) continue;
      std::uint32_t now = kNoBlock;
      for (const Block::From& from : flow.blocks[block].from) {
        if (over[from.block] == kNoBlock) continue;
        now = now == kNoBlock ? from.block : common(now, from.block);
        if (now == kNoBlock) break;
      }
      if (now == over[block]) continue;
      over[block] = now;
      changed = true;
    }
  }
  for (const std::uint32_t block : order) {
    if (over[block] == kNoBlock || over[block] == block) continue;
    immediate_[block] = over[block];
    depth_[block] = depth_[over[block]] + 1;
  }
}

bool Dominators::dominates(std::uint32_t over, std::uint32_t block) const {
  while (block != kNoBlock && depth_[block] > depth_[over]) block = immediate_[block];
  return block == over;
}

}  // namespace nimble::code::sass
