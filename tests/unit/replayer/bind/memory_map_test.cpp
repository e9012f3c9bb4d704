#include "replayer/bind/memory_map.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace nimble {
namespace {

TEST(MemoryMap, FindsByAnyAddressInside) {
  MemoryMap map;
  map.add({1000, 100});
  EXPECT_EQ(map.find(999), nullptr);
  ASSERT_NE(map.find(1000), nullptr);
  ASSERT_NE(map.find(1099), nullptr);
  EXPECT_EQ(map.find(1100), nullptr);
  map.remove(1050);  // no allocation starts there
  EXPECT_NE(map.find(1050), nullptr);
  map.remove(1000);
  EXPECT_EQ(map.find(1050), nullptr);
}

TEST(MemoryMap, EmptyAllocationsHoldNothing) {
  MemoryMap map;
  map.add({1000, 0});
  EXPECT_EQ(map.find(1000), nullptr);
}

// Against a list that is searched from its newest entry.
TEST(MemoryMap, NewerAllocationsReplaceWhatTheyOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    MemoryMap map;
    std::vector<Allocation> list;
    for (int i = 0; i < 40; ++i) {
      if (random() % 4 == 0 && !list.empty()) {
        const std::uint64_t base = list[random() % list.size()].base;
        map.remove(base);
        std::erase_if(list, [&](const Allocation& a) { return a.base == base; });
      } else {
        const Allocation added{random() % 200, 1 + random() % 30};
        map.add(added);
        std::erase_if(list, [&](const Allocation& a) {
          return a.base < added.base + added.size && added.base < a.base + a.size;
        });
        list.push_back(added);
      }
      for (std::uint64_t address = 0; address < 240; ++address) {
        const Allocation* expected = nullptr;
        for (const Allocation& a : list) {
          if (address >= a.base && address < a.base + a.size) expected = &a;
        }
        const Allocation* found = map.find(address);
        ASSERT_EQ(found != nullptr, expected != nullptr) << address;
        if (!found) continue;
        ASSERT_EQ(found->base, expected->base);
      }
    }
  }
}

}  // namespace
}  // namespace nimble
