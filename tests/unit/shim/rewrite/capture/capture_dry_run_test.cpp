#include "shim/rewrite/capture/capture_dry_run.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

using Numbers = std::vector<std::uint64_t>;

const auto kEvent = reinterpret_cast<CUevent>(0x100), kOther = reinterpret_cast<CUevent>(0x200);

struct RehearsalsTest : testing::Test {
  Rehearsals rehearsals;

  void record(std::uint64_t stream, CUevent event) { rehearsals.follow(call(CallKind::event_record, stream, event)); }
  void wait(std::uint64_t stream, CUevent event) { rehearsals.follow(call(CallKind::event_wait, stream, event)); }
  void end(Ends ends, std::uint64_t stream, CUevent event) {
    Call ending = call(CallKind::opaque, stream, event);
    ending.ends = ends;
    rehearsals.ending(ending);
  }
  static Call call(CallKind kind, std::uint64_t stream, CUevent event) {
    Call made;
    made.kind = kind;
    made.stream.key = stream;
    made.event = event;
    return made;
  }
};

TEST_F(RehearsalsTest, StreamsJoinByEvents) {
  EXPECT_FALSE(rehearsals.any());
  record(8, kEvent);
  const std::uint64_t one = rehearsals.begin(8);
  EXPECT_TRUE(rehearsals.any());
  EXPECT_GT(one, std::uint64_t{1} << 62) << "no capture of the driver's";
  EXPECT_EQ(rehearsals.of(8), Numbers{one});
  wait(16, kEvent);
  EXPECT_EQ(rehearsals.of(16), Numbers{}) << "it was recorded before";
  record(16, kOther);
  wait(24, kOther);
  EXPECT_EQ(rehearsals.of(24), Numbers{}) << "of a stream that is no part of it";
  record(8, kEvent);
  EXPECT_EQ(rehearsals.of(16), Numbers{}) << "no stream has waited yet";
  wait(16, kEvent);
  record(16, kOther);
  wait(24, kOther);
  EXPECT_EQ(rehearsals.of(16), Numbers{one});
  EXPECT_EQ(rehearsals.of(24), Numbers{one}) << "by a stream that waits";
  EXPECT_EQ(rehearsals.end(one), 3u);
  EXPECT_EQ(rehearsals.of(8), Numbers{});
  EXPECT_FALSE(rehearsals.any());
  EXPECT_EQ(rehearsals.end(one), 0u);
  EXPECT_FALSE(rehearsals.any());
}

TEST_F(RehearsalsTest, LaunchesRecordEventsToo) {
  const std::uint64_t one = rehearsals.begin(8);
  rehearsals.follow(call(CallKind::launch, 8, nullptr));
  Call launch = call(CallKind::launch, 8, kEvent);
  launch.event2 = kOther;
  rehearsals.follow(launch);
  wait(16, kEvent);
  wait(24, kOther);
  EXPECT_EQ(rehearsals.of(16), Numbers{one});
  EXPECT_EQ(rehearsals.of(24), Numbers{one});
  launch.stream.key = 32;
  rehearsals.follow(launch);
  wait(40, kOther);
  EXPECT_EQ(rehearsals.of(40), Numbers{}) << "another stream has recorded it since";
}

TEST_F(RehearsalsTest, AnEventIsThatOfItsLastRecord) {
  const std::uint64_t one = rehearsals.begin(8);
  record(8, kEvent);
  record(16, kEvent);
  wait(24, kEvent);
  EXPECT_EQ(rehearsals.of(24), Numbers{});
  record(8, kEvent);
  wait(24, kEvent);
  EXPECT_EQ(rehearsals.of(24), Numbers{one});
}

TEST_F(RehearsalsTest, HandlesComeBackAsOthers) {
  rehearsals.begin(8);
  record(8, kEvent);
  wait(16, kEvent);
  end(Ends::stream, 16, nullptr);
  EXPECT_EQ(rehearsals.of(16), Numbers{});
  end(Ends::event, 0, kEvent);
  wait(24, kEvent);
  EXPECT_EQ(rehearsals.of(24), Numbers{});
}

TEST_F(RehearsalsTest, SeveralAtOnce) {
  const std::uint64_t one = rehearsals.begin(8), other = rehearsals.begin(16);
  EXPECT_NE(one, other);
  record(8, kEvent);
  wait(24, kEvent);
  EXPECT_EQ(rehearsals.of(24), Numbers{one});
  record(16, kOther);
  wait(24, kOther);
  EXPECT_EQ(rehearsals.of(24), (Numbers{one, other}));
  rehearsals.end(one);
  EXPECT_TRUE(rehearsals.any());
  EXPECT_EQ(rehearsals.of(24), Numbers{other});
}

}  // namespace
}  // namespace nimble::shim
