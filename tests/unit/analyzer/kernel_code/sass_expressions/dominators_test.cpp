// Dominators of random graphs, against what can still be reached without a block.
#include "analyzer/kernel_code/sass_expressions/dominators.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace nimble::code::sass {
namespace {

// Blocks that can be reached from a function's first without going through one.
std::vector<bool> reached(const ControlFlow& flow, std::uint32_t entry, std::uint32_t without) {
  std::vector<bool> seen(flow.blocks.size());
  if (entry != without) seen[entry] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t block = 0; block < flow.blocks.size(); ++block) {
      if (seen[block] || block == without) continue;
      for (const Block::From& from : flow.blocks[block].from) {
        if (!seen[from.block]) continue;
        seen[block] = true;
        changed = true;
      }
    }
  }
  return seen;
}

ControlFlow random_flow(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ControlFlow flow;
  const unsigned functions = 1 + random() % 2;
  for (unsigned function = 0; function < functions; ++function) {
    const auto first = static_cast<std::uint32_t>(flow.blocks.size());
    const auto count = static_cast<std::uint32_t>(1 + random() % 10);
    for (std::uint32_t i = 0; i < count; ++i) flow.blocks.emplace_back().function = function;
    // The first block need not be the first in the text, and may begin a loop.
    flow.functions.emplace_back().entry = first + static_cast<std::uint32_t>(random() % count);
    const unsigned edges = static_cast<unsigned>(random() % (3 * count + 1));
    for (unsigned i = 0; i < edges; ++i)
      flow.blocks[first + random() % count].from.push_back(
          {static_cast<std::uint32_t>(first + random() % count), false});
  }
  return flow;
}

TEST(Dominators, OfRandomGraphsAreThoseWithoutWhichABlockIsNotReached) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const ControlFlow flow = random_flow(seed);
    const Dominators dominators(flow);
    for (std::uint32_t block = 0; block < flow.blocks.size(); ++block) {
      const std::uint32_t entry = flow.functions[flow.blocks[block].function].entry;
      const bool is_reached = reached(flow, entry, kNoBlock)[block];
      if (!is_reached || block == entry) {
        EXPECT_EQ(dominators.immediate(block), kNoBlock) << seed;
        continue;
      }
      std::uint32_t last = kNoBlock;  // the one that all others dominate
      unsigned most = 0;
      for (std::uint32_t over = 0; over < flow.blocks.size(); ++over) {
        const bool expected = over == block || !reached(flow, entry, over)[block];
        ASSERT_EQ(dominators.dominates(over, block), expected) << seed << ": " << over << " over " << block;
        if (!expected || over == block) continue;
        unsigned before = 0;
        for (std::uint32_t other = 0; other < flow.blocks.size(); ++other)
          before += reached(flow, entry, other)[over] ? 0u : 1u;
        if (last == kNoBlock || before > most) last = over, most = before;
      }
      EXPECT_EQ(dominators.immediate(block), last) << seed;
    }
  }
}

}  // namespace
}  // namespace nimble::code::sass
