#include "replayer/onlookers/touched_by_ops.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

class TouchedByOpsTest : public testing::Test {
 protected:
  // An op of the stream, which the driver has had.
  StreamClocks::Op op(std::uint64_t key = 0x100) {
    const StreamClocks::Op made = clocks_.arrives(stream(key));
    clocks_.landed(made, true);
    return made;
  }
  static StreamClocks::Stream stream(std::uint64_t key) {
    return {{reinterpret_cast<CUstream>(key), key}, StreamKind::non_blocking, 1};
  }
  static Touched touching(std::uint64_t begin, std::uint64_t end, bool written) {
    Touched touched;
    touched.add({begin, end, written});
    return touched;
  }
  // Whether work that writes there, or reads, would meet an op, where nothing is known to be through.
  bool meets(std::uint64_t begin, std::uint64_t end, bool written = true) {
    const MemoryRange range{begin, end, written};
    return ops_.meets({}, {{&range, 1}});
  }

  StreamClocks clocks_;
  TouchedByOps ops_{clocks_};
};

TEST_F(TouchedByOpsTest, RangesMeetWhereOneOfTheTwoWrites) {
  ops_.add(op(), touching(100, 200, false).view(), nullptr);
  EXPECT_TRUE(meets(150, 160));
  EXPECT_FALSE(meets(150, 160, false));
  EXPECT_FALSE(meets(200, 300));
}

TEST_F(TouchedByOpsTest, WhatTheClockHasIsNoneOfTheConcern) {
  const StreamClocks::Op done = op();
  ops_.add(done, touching(100, 200, true).view(), nullptr);
  StreamClocks::Clock clock;
  clock.raise(done.slot, done.number);
  const MemoryRange range{100, 200, true};
  EXPECT_FALSE(ops_.meets(clock, {{&range, 1}}));
  ops_.add(op(), touching(100, 200, true).view(), nullptr);
  EXPECT_TRUE(ops_.meets(clock, {{&range, 1}}));
}

TEST_F(TouchedByOpsTest, AnOpThatIsToldLaterThanOneAfterItHidesNothingOfThat) {
  const StreamClocks::Op first = op(), second = op(), third = op();
  Touched all = touching(100, 200, true);
  all.variables = true;
  ops_.add(third, all.view(), nullptr);
  ops_.add(first, all.view(), nullptr);
  StreamClocks::Clock clock;
  clock.raise(second.slot, second.number);
  const MemoryRange range{100, 200, true};
  EXPECT_TRUE(ops_.meets(clock, {{&range, 1}}));
  EXPECT_TRUE(ops_.meets(clock, {{}, true, false}));
  Touched anything;
  anything.anything = true;
  ops_.add(third, anything.view(), nullptr);
  ops_.add(first, anything.view(), nullptr);
  EXPECT_TRUE(ops_.meets(clock, {{}, true, false}));
  clock.raise(third.slot, third.number);
  EXPECT_FALSE(ops_.meets(clock, {{&range, 1}}));
}

TEST_F(TouchedByOpsTest, OfMoreRangesThanThereIsRoomForAnythingIsTouched) {
  for (std::uint64_t i = 0; i < 1000; ++i) ops_.add(op(), touching(100 * i, 100 * i + 50, true).view(), nullptr);
  EXPECT_TRUE(meets(60, 70));
}

TEST_F(TouchedByOpsTest, AnUnknownOpMeetsEverything) {
  ops_.add_unknown();
  EXPECT_TRUE(meets(0, 1));
  EXPECT_TRUE(ops_.meets({}, {}));
}

TEST_F(TouchedByOpsTest, MemoryThatIsReleasedIsTouchedNoMore) {
  ops_.add(op(), touching(100, 200, true).view(), nullptr);
  ops_.release(100);
  EXPECT_FALSE(meets(100, 200));
}

TEST_F(TouchedByOpsTest, WorkThatUsesOtherMemoryMayHaveTouchedAnything) {
  struct Idle final : RelaxedWork {
    bool is_through() noexcept override { return true; }
  };
  const auto work = std::make_shared<Idle>();
  ops_.add(op(), {}, work);
  EXPECT_FALSE(meets(100, 200));  // it uses nothing yet
  ops_.forget(*work);
  EXPECT_TRUE(meets(100, 200));
}

}  // namespace
}  // namespace nimble
