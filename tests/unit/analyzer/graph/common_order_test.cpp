#include "analyzer/graph/common_order.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace nimble::analyzer {
namespace {

using Edges = std::vector<Dag::Edge>;

TEST(GivenOrder, WhatEitherDoesNotOrderStaysUnordered) {
  // Two transforms that write parts of one piece of memory, and a reader of both.
  const CommonOrder found = common_order(Dag(3, {{0, 1}, {1, 2}}), Dag(3, {{0, 2}, {1, 2}}));
  EXPECT_EQ(found.edges, (Edges{{1, 2}, {0, 2}}));
  EXPECT_TRUE(found.is_given);
}

TEST(GivenOrder, NoEdgeThatOthersImply) {
  const CommonOrder found = common_order(Dag(4, {{0, 1}, {1, 2}, {0, 2}}), Dag(4, {{0, 1}, {0, 2}, {1, 2}, {2, 3}}));
  EXPECT_EQ(found.edges, (Edges{{0, 1}, {1, 2}}));
  EXPECT_FALSE(found.is_given);
}

// Against paths looked for one by one, across the words of a row.
TEST(GivenOrder, RandomGraphs) {
  std::mt19937 random(7);
  const auto reaches = [](const Dag& dag, std::uint32_t from, std::uint32_t to) {
    std::vector<bool> seen(dag.nodes());
    std::vector<std::uint32_t> open{from};
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      if (at == to) return true;
      if (seen[at]) continue;
      seen[at] = true;
      for (const std::uint32_t next : dag.successors(at)) open.push_back(next);
    }
    return false;
  };
  int all = 0;
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t ops = round < 250 ? 2 + random() % 8 : 60 + random() % 80;
    const auto edges = [&] {
      Edges result;
      for (std::uint32_t a = 0; a < ops; ++a)
        for (std::uint32_t b = a + 1; b < ops; ++b)
          if (random() % (ops / 2 + 1) == 0) result.push_back({a, b});
      return Dag(ops, result);
    };
    const Dag needed = edges(), given = edges();
    const CommonOrder found = common_order(needed, given);
    const Dag made(ops, found.edges);
    bool is_given = true;
    for (std::uint32_t a = 0; a < ops; ++a)
      for (std::uint32_t b = a + 1; b < ops; ++b) {
        const bool both = reaches(needed, a, b) && reaches(given, a, b);
        ASSERT_EQ(reaches(made, a, b), both) << a << " before " << b;
        is_given = is_given && both == reaches(given, a, b);
      }
    EXPECT_EQ(found.is_given, is_given);
    all += is_given;
    for (std::size_t left_out = 0; left_out < std::min<std::size_t>(found.edges.size(), 20); ++left_out) {
      Edges fewer = found.edges;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(left_out));
      const Dag::Edge edge = found.edges[left_out];
      ASSERT_FALSE(reaches(Dag(ops, fewer), edge[0], edge[1])) << "others imply it";
    }
  }
  EXPECT_GT(all, 5);
}

}  // namespace
}  // namespace nimble::analyzer
