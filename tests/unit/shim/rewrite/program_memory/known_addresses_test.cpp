#include "shim/rewrite/program_memory/known_addresses.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace nimble::shim {
namespace {

constexpr std::uint64_t kPage = 1 << 16;

TEST(KnownAddresses, HoldsWhatHasBeen) {
  KnownAddresses known;
  EXPECT_FALSE(known.holds(0x302000000));
  known.came(0x302000000, 100);
  EXPECT_TRUE(known.holds(0x302000000));
  EXPECT_TRUE(known.holds(0x302000000 + 100)) << "the end";
  EXPECT_TRUE(known.holds(0x302000000 - 256)) << "as if counted from one";
  EXPECT_FALSE(known.holds(0x302000000 + kPage));
  EXPECT_FALSE(known.holds(0x400000002)) << "two numbers, a 2 and a 4";
  known.came(0x7f0000000000, 0);
  EXPECT_TRUE(known.holds(0x7f0000000000));
}

// Against a set of pages.
TEST(KnownAddresses, WhateverComes) {
  std::mt19937 random(1);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 50; ++round) {
    KnownAddresses known;
    std::set<std::uint64_t> pages;
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t address = 1 + below(100) * kPage + below(kPage), size = below(5) == 0 ? 0 : below(6 * kPage);
      known.came(address, size);
      for (std::uint64_t page = (address - std::min<std::uint64_t>(address, 256)) / kPage;
           page <= (address + size + 256) / kPage; ++page)
        pages.insert(page);
      for (std::uint64_t page = 0; page < 110; ++page)
        ASSERT_EQ(known.holds(page * kPage + below(kPage)), pages.contains(page)) << page;
    }
  }
}

}  // namespace
}  // namespace nimble::shim
