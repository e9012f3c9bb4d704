#include "analyzer/kernel_code/sass_flow/roots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace nimble::code::sass {
namespace {

TEST(RootSets, AreTheSetsThatTheyStandFor) {
  RootSets sets;
  std::mt19937 random(1);
  std::vector<std::pair<RootSet, std::set<Root>>> known{{kNoRoots, {}}};
  for (Root root = 0; root < 8; ++root) known.emplace_back(sets.of(root), std::set<Root>{root});
  for (int i = 0; i < 2000; ++i) {
    const auto& [a, of_a] = known[random() % known.size()];
    const auto& [b, of_b] = known[random() % known.size()];
    std::set<Root> both = of_a, common;
    both.insert(of_b.begin(), of_b.end());
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::inserter(common, common.end()));
    const RootSet is_both = sets.both(a, b), is_common = sets.common(a, b);
    EXPECT_EQ(std::set<Root>(sets.roots(is_both).begin(), sets.roots(is_both).end()), both);
    EXPECT_EQ(std::set<Root>(sets.roots(is_common).begin(), sets.roots(is_common).end()), common);
    for (Root root = 0; root < 8; ++root) EXPECT_EQ(sets.has(is_both, root), both.contains(root));
    known.emplace_back(is_both, both);
    known.emplace_back(is_common, common);
  }
  EXPECT_LE(sets.size(), std::size_t{8} << 7) << "each set is kept once";
}

// A sum is an address where one of its parts is; zero adds nothing, and is no address by itself.
TEST(Contents, SumsAreAddressesWhereOnePartIs) {
  Contents contents(2);
  const Content p = contents.low(0), q = contents.low(1), number = kNumber;
  EXPECT_EQ(contents.sum(p, number), p);
  EXPECT_EQ(contents.sum(p, kZero), p);
  EXPECT_TRUE(contents.sum(number, number).number);
  EXPECT_TRUE(contents.sum(number, kZero).number);
  EXPECT_TRUE(contents.sum(kZero, number).number);
  EXPECT_EQ(contents.sum(kZero, kZero), kZero);
  EXPECT_EQ(contents.sum(p, q), contents.either(p, q));
  // An address, or null, plus a number: by the address, if by anything.
  EXPECT_FALSE(contents.sum(contents.either(p, kZero), number).number);
  // An address, or a number, plus a number: it may be a number.
  EXPECT_TRUE(contents.sum(contents.either(p, number), number).number);
  // What nothing wrote makes no address of a number.
  const Content nothing = contents.either_half(contents.special(kRootOfNothing));
  EXPECT_TRUE(contents.sum(nothing, number).number);
  EXPECT_FALSE(contents.sum(nothing, p).number);
  EXPECT_FALSE(contents.is_address(nothing));
  EXPECT_TRUE(contents.is_address(contents.either(nothing, p)));
}

TEST(Contents, WhatIsComputedIsANumberThatHoldsSomethingOfIt) {
  Contents contents(1);
  const Content weak = contents.weak(contents.either_half(0));
  EXPECT_TRUE(weak.number);
  EXPECT_EQ(weak.low, kNoRoots);
  EXPECT_EQ(weak.high, kNoRoots);
  EXPECT_TRUE(contents.sets().has(weak.from, 0));
}

}  // namespace
}  // namespace nimble::code::sass
