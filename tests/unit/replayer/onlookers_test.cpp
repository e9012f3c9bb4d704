#include "replayer/onlookers.h"

#include <gtest/gtest.h>

#include "replayer/touched_addresses.h"
#include "replayer/watched_memory.h"
#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

const StreamRef kWork{FakeDriver::kStream, 0x1000}, kOther{FakeDriver::kOther, 0x2000};
const CUevent kEvent = reinterpret_cast<CUevent>(0x51), kBack = reinterpret_cast<CUevent>(0x52);

class OnlookersTest : public testing::Test {
 protected:
  bool any(bool news = false, bool may_ask = true) {
    return onlookers_.any(api_, news, may_ask, [](const StreamRef& stream) { return stream == kWork; });
  }
  static Call copy(const StreamRef& stream) {
    Call call;
    call.kind = CallKind::copy;
    call.host = HostEffect::async;
    call.traced = call.has_stream = true;
    call.stream = stream;
    return call;
  }
  void look(const StreamRef& stream = kOther) {
    Call call = copy(stream);
    onlookers_.arrives(call);
    onlookers_.looks(call);
    onlookers_.landed(call);
  }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  Onlookers onlookers_;
};

TEST_F(OnlookersTest, WhoLooksIsThereFromItsWayToTheDriverUntilItIsThrough) {
  EXPECT_FALSE(any());
  Call call = copy(kOther);
  onlookers_.arrives(call);
  EXPECT_FALSE(any());  // it may be anything, and nothing says that it looks
  onlookers_.looks(call);
  EXPECT_TRUE(any());
  driver_.busy = true;
  onlookers_.landed(call);
  EXPECT_TRUE(any());
  EXPECT_TRUE(any());
  driver_.busy = false;
  EXPECT_FALSE(any());
  driver_.busy = true;
  EXPECT_FALSE(any());  // what else there is on the stream does not matter
}

TEST_F(OnlookersTest, WhatTheHostHasWaitedForIsThrough) {
  Call call = copy(kOther);
  call.host = HostEffect::observe;
  onlookers_.arrives(call);
  onlookers_.looks(call);
  EXPECT_TRUE(any());
  driver_.busy = true;
  onlookers_.landed(call);
  EXPECT_FALSE(any());
}

TEST_F(OnlookersTest, OpsOnTheWorksOwnStreamAreInOrderWithIt) {
  driver_.busy = true;
  look(kWork);
  EXPECT_FALSE(any());
}

TEST_F(OnlookersTest, WhoeverIsThereMayBeAtMemoryThatIsNew) {
  driver_.busy = true;
  Call call = copy(kOther);
  onlookers_.arrives(call);
  onlookers_.landed(call);
  EXPECT_FALSE(any());
  EXPECT_TRUE(any(/*news=*/true));
  EXPECT_TRUE(any());
  driver_.busy = false;
  EXPECT_FALSE(any());
}

TEST_F(OnlookersTest, WhatWasOnItsWayWhenMemoryWasNewCountsWhenItHasLanded) {
  driver_.busy = true;
  Call call = copy(kOther);
  onlookers_.arrives(call);
  EXPECT_TRUE(any(/*news=*/true));
  EXPECT_TRUE(any());
  onlookers_.landed(call);
  EXPECT_TRUE(any());
  driver_.busy = false;
  EXPECT_FALSE(any());
}

TEST_F(OnlookersTest, AnEventOfTheirsThatTheWorkWaitsForPutsThemBeforeIt) {
  driver_.busy = true;
  look();
  onlookers_.recorded_outside(kBack, kOther);
  EXPECT_TRUE(any());
  onlookers_.work_waits(kBack);
  EXPECT_FALSE(any());
  look();  // behind the record
  EXPECT_TRUE(any());
  onlookers_.work_waits(kBack);
  EXPECT_TRUE(any());
}

TEST_F(OnlookersTest, AnEventOfTheWorksThatAStreamWaitsForPutsItBehindThatLaunch) {
  onlookers_.recorded(kEvent, kWork, 3);
  EXPECT_TRUE(onlookers_.knows(kEvent));
  EXPECT_FALSE(onlookers_.is_behind(kOther, kWork, 3));
  onlookers_.waits(kOther, kEvent);
  EXPECT_TRUE(onlookers_.is_behind(kOther, kWork, 3));
  EXPECT_FALSE(onlookers_.is_behind(kOther, kWork, 4));
}

TEST_F(OnlookersTest, AnEventThatIsRecordedElsewhereSaysNothingOfTheWorkAnyMore) {
  onlookers_.recorded(kEvent, kWork, 3);
  onlookers_.recorded_outside(kEvent, kOther);
  EXPECT_FALSE(onlookers_.knows(kEvent));
  onlookers_.waits(kOther, kEvent);
  EXPECT_FALSE(onlookers_.is_behind(kOther, kWork, 3));
}

TEST_F(OnlookersTest, NothingIsAskedWhereThatIsForbidden) {
  look();
  EXPECT_TRUE(any(false, /*may_ask=*/false));
  EXPECT_FALSE(any());
}

TEST_F(OnlookersTest, WhatAStreamHadWhenItEndedIsStillThere) {
  driver_.busy = true;
  look();
  onlookers_.ends(&api_, kOther);
  EXPECT_TRUE(any());
  driver_.busy = false;
  EXPECT_FALSE(any());
}

TEST_F(OnlookersTest, WhatNobodyCanTellOfAStreamThatEndsStaysInDoubt) {
  look();
  onlookers_.ends(nullptr, kOther);
  EXPECT_TRUE(any());
  EXPECT_TRUE(onlookers_.crowded());
}

TEST_F(OnlookersTest, MoreStreamsThanThereIsRoomForAreACrowd) {
  for (std::uint64_t i = 1; i <= Onlookers::kMostStreams; ++i)
    look({reinterpret_cast<CUstream>(i * 0x1000), i * 0x1000});
  EXPECT_FALSE(onlookers_.crowded());
  look({reinterpret_cast<CUstream>(0x900000), 0x900000});
  EXPECT_TRUE(onlookers_.crowded());
  EXPECT_TRUE(any());
}

TEST(WatchedMemory, IsMetByWhoReadsWhatIsWrittenAndByWhoWritesAnyOfIt) {
  WatchedMemory memory(4);
  EXPECT_FALSE(memory.meets(0x100, 8, true));
  const WatchedMemory::Range ranges[] = {{0x100, 0x200, true}, {0x200, 0x280, false}, {0x400, 0x500, true}};
  memory.set(ranges);
  EXPECT_TRUE(memory.meets(0x1f8, 8, false));
  EXPECT_FALSE(memory.meets(0x200, 8, false));
  EXPECT_TRUE(memory.meets(0x200, 8, true));
  EXPECT_FALSE(memory.meets(0x280, 0x180, true));
  EXPECT_TRUE(memory.meets(0x280, 0x181, true));
  EXPECT_TRUE(memory.meets(0x240, 0x200, false));  // reaches into the third
  EXPECT_FALSE(memory.meets(0xf8, 8, true));
  EXPECT_TRUE(memory.meets(0xf8, 9, true));
  EXPECT_FALSE(memory.meets(0x500, 8, true));
}

TEST(TouchedAddresses, AreThoseOfCopiesAndTheWordsOfKernels) {
  FakeDriver driver;
  std::vector<std::uint64_t> seen;
  const auto touches = [&](std::uint64_t address, std::uint64_t, bool) { return seen.push_back(address), false; };
  const auto leads = [&](std::uint64_t word) { return seen.push_back(word), false; };
  Call call;
  call.kind = CallKind::copy;
  call.dst.address = 0x10;
  call.src.address = 0x20;
  call.width = 8;
  EXPECT_FALSE(any_touched(call, driver, false, touches, leads));
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0x10, 0x20}));
  seen.clear();
  std::uint64_t pointer = 0x7000;
  std::uint32_t number = 5;
  void* params[] = {&pointer, &number};
  call.kind = CallKind::launch;
  call.function = FakeDriver::kKernel;
  call.kernel_params = params;
  EXPECT_FALSE(any_touched(call, driver, false, touches, leads));
  EXPECT_EQ(seen.front(), 0x7000u);
  EXPECT_TRUE(any_touched(call, driver, /*beyond=*/true, touches, leads));
  call.kernel_params = nullptr;  // they cannot be read
  EXPECT_TRUE(any_touched(call, driver, false, touches, leads));
  call.kind = CallKind::graph_launch;
  EXPECT_TRUE(any_touched(call, driver, false, touches, leads));
  call.kind = CallKind::host_function;
  EXPECT_FALSE(any_touched(call, driver, false, touches, leads));
}

}  // namespace
}  // namespace nimble
