#include "shim/process/handle_slot.h"

#include <gtest/gtest.h>

#include <set>

namespace nimble::shim {
namespace {

// However far apart the driver's objects lie, few of those that a program uses in turns take each other's place.
TEST(HandleSlot, EvenlySpacedHandlesSpread) {
  for (const std::uint64_t distance : {8, 16, 24, 48, 64, 96, 192, 256, 320, 512, 1024, 4096, 65536}) {
    std::set<std::size_t> taken;
    for (std::uint64_t i = 0; i < 128; ++i) taken.insert(handle_slot(0x5555deadb000 + i * distance, 256));
    EXPECT_GT(taken.size(), 64u) << "objects " << distance << " bytes apart";
    EXPECT_LT(*taken.rbegin(), 256u);
  }
}

}  // namespace
}  // namespace nimble::shim
