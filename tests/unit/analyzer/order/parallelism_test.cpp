#include "analyzer/order/parallelism.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

Parallelism count(const Dag& dag, const std::vector<Evidence>& evidence, std::uint64_t budget = ~std::uint64_t{0}) {
  ParallelismCounter counter(budget);
  counter.add(dag, evidence);
  return counter.result();
}

std::vector<Evidence> random_evidence(test::Random& random, std::uint32_t nodes) {
  std::vector<Evidence> evidence;
  for (std::uint32_t i = 0; i < nodes; ++i) evidence.push_back(static_cast<Evidence>(test::below(random, 4)));
  return evidence;
}

TEST(Parallelism, AForkHasOnePairKnownAsWellAsTheWorseOfIt) {
  Parallelism found = count(Dag(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}),
                            {Evidence::observed, Evidence::exact, Evidence::declared, Evidence::observed});
  EXPECT_EQ(found.all(), 1u);
  EXPECT_EQ(found.pairs[static_cast<int>(Evidence::declared)], 1u);
  EXPECT_EQ(found.share(Evidence::declared), 1.0);
  EXPECT_TRUE(found.exact);
}

TEST(Parallelism, NothingHasNoShares) {
  EXPECT_EQ(count(Dag(0, {}), {}).all(), 0u);
  Parallelism chain = count(Dag(3, {{0, 1}, {1, 2}}), std::vector(3, Evidence::exact));
  EXPECT_EQ(chain.all(), 0u);
  EXPECT_EQ(chain.share(Evidence::exact), 0.0);
}

TEST(Parallelism, CountsWhatTheClosureLeavesOut) {
  test::Random random(7);
  for (int round = 0; round < 60; ++round) {
    std::uint32_t nodes = 1 + test::below(random, 200);
    Dag dag = test::random_dag(random, nodes, 0.3 * static_cast<double>(round % 10) / 10);
    std::vector<Evidence> evidence = random_evidence(random, nodes);
    std::uint64_t expected[kEvidences] = {};
    auto reached = test::closure(dag);
    for (std::uint32_t a = 0; a < nodes; ++a)
      for (std::uint32_t b = a + 1; b < nodes; ++b)
        if (!reached[a][b]) ++expected[static_cast<int>(weaker(evidence[a], evidence[b]))];
    Parallelism found = count(dag, evidence);
    for (int e = 0; e < kEvidences; ++e) EXPECT_EQ(found.pairs[e], expected[e]) << "round " << round;
  }
}

TEST(Parallelism, ASampleComesCloseAndIsTheSameEveryTime) {
  test::Random random(11);
  std::uint32_t nodes = 3000;
  Dag dag = test::random_dag(random, nodes, 0.001);
  std::vector<Evidence> evidence = random_evidence(random, nodes);
  Parallelism exact = count(dag, evidence), sampled = count(dag, evidence, 0), again = count(dag, evidence, 0);
  EXPECT_TRUE(exact.exact);
  EXPECT_FALSE(sampled.exact);
  for (int e = 0; e < 4; ++e) {
    EXPECT_EQ(sampled.pairs[e], again.pairs[e]);
    EXPECT_NEAR(sampled.share(static_cast<Evidence>(e)), exact.share(static_cast<Evidence>(e)), 0.05);
  }
  EXPECT_NEAR(static_cast<double>(sampled.all()), static_cast<double>(exact.all()),
              0.1 * static_cast<double>(exact.all()));
}

TEST(Parallelism, AMillionOpsTakeLittle) {
  constexpr std::uint32_t kNodes = 1'000'000;
  std::vector<Dag::Edge> edges;
  for (std::uint32_t node = 0; node + 16 < kNodes; ++node) edges.push_back({node, node + 16});
  for (std::uint32_t node = 0; node + 1 < kNodes; node += 50) edges.push_back({node, node + 1});
  Dag dag(kNodes, edges);
  std::vector<Evidence> evidence(kNodes, Evidence::proven);
  auto begin = std::chrono::steady_clock::now();
  ParallelismCounter counter;
  counter.add(dag, evidence);
  // Many segments, as well.
  std::vector<Dag::Edge> few;
  for (std::uint32_t node = 0; node + 16 < 4000; ++node) few.push_back({node, node + 16});
  Dag small(4000, few);
  for (int i = 0; i < 250; ++i) counter.add(small, std::span(evidence).first(4000));
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(counter.result().all(), 0u);
  EXPECT_LT(took.count(), 15) << "a second, and allowance for sanitizers and busy machines";
  RecordProperty("seconds", std::to_string(took.count()));
}

}  // namespace
}  // namespace nimble::analyzer
