#include "analyzer/graph/dag.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

TEST(Dag, KeepsEachEdgeOnceInBothDirections) {
  Dag dag(4, {{2, 3}, {0, 2}, {0, 1}, {0, 2}});
  EXPECT_EQ(dag.nodes(), 4u);
  EXPECT_EQ(dag.edges(), (std::vector<Dag::Edge>{{0, 1}, {0, 2}, {2, 3}}));
  EXPECT_EQ(std::vector<std::uint32_t>(dag.successors(0).begin(), dag.successors(0).end()),
            (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(std::vector<std::uint32_t>(dag.predecessors(3).begin(), dag.predecessors(3).end()),
            (std::vector<std::uint32_t>{2}));
  EXPECT_TRUE(dag.successors(3).empty());
}

TEST(Dag, MayBeEmpty) {
  EXPECT_EQ(Dag().nodes(), 0u);
  EXPECT_TRUE(Dag(3, {}).predecessors(2).empty());
}

}  // namespace
}  // namespace nimble::analyzer
