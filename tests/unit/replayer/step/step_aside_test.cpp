// When the player leaves the program's calls to the driver: for good, or while a stream captures.
#include <gtest/gtest.h>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

TEST_F(StepPlayerTest, NoGraphsNoReplay) {
  bind();
  driver_.refuse["instantiate"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(alloc(), kPool);
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, ErrorsOfTheDriverStandReplayAsideAndLoseNothing) {
  bind();
  step();
  submitted();
  driver_.refuse["graph"] = CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t t = alloc();
  first_part(t);
  EXPECT_EQ(submitted(), (Log{"set 1", "launch 1", "record", "launch 2", "record", "wait"}));
  EXPECT_NE(player_.stood_aside(), "");
  // Memory that was served is still looked after, and then the driver's again.
  Call release = call(CallKind::free_async);
  release.memory.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_SUCCESS);
  EXPECT_EQ(submitted(), (Log{"record", "wait", "free"}));
  EXPECT_EQ(player_.before_aside(release), std::nullopt);
}

TEST_F(StepPlayerTest, ARefusedOpReachesTheProgram) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  driver_.refuse["set"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  Call c = call(CallKind::stream_synchronize);
  c.host = HostEffect::observe;
  EXPECT_EQ(make(c), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(player_.stood_aside(), "");
}

// Only the result of some calls shows that something is hidden: held ops must not be lost.
TEST_F(StepPlayerTest, HeldOpsAreSubmittedBeforeReplayStandsAside) {
  bind();
  set(alloc());
  submitted();
  Call late;
  late.traced = true;
  late.kind = CallKind::hidden;
  late.note = "something";
  player_.after(late, CUDA_SUCCESS);
  EXPECT_EQ(submitted(), (Log{"set 1", "record", "wait"}));
  EXPECT_NE(player_.stood_aside(), "");
  EXPECT_EQ(player_.holding(), 0u);
}

TEST_F(StepPlayerTest, MemoryThatOthersReachEndsReplay) {
  bind();
  set(alloc());
  submitted();
  allocated(0xa000, 64, MemoryKind::external);
  EXPECT_EQ(submitted(), (Log{"set 1", "record", "wait"}));
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, TexturesEndReplayWhereAccessesRestOnTheirAbsence) {
  for (const bool textures : {false, true}) {
    Schedule s = schedule();
    s.textures = textures;
    Counters counters;
    StepPlayer player(s, driver_, api_, counters);
    Call texture;
    texture.traced = texture.texture = true;
    texture.kind = CallKind::hidden;
    texture.note = "cuTexObjectCreate";
    player.after(texture, CUDA_SUCCESS);
    EXPECT_EQ(player.stood_aside().empty(), textures);
  }
}

TEST_F(StepPlayerTest, AFailedCallHidesNothing) {
  bind();
  Call failed;
  failed.traced = true;
  failed.kind = CallKind::hidden;
  failed.note = "something";
  EXPECT_FALSE(player_.before(failed));
  player_.after(failed, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, AnotherContextsEndChangesNothing) {
  bind();
  Call end;
  end.traced = true;
  end.kind = CallKind::context_end;
  end.context = reinterpret_cast<CUcontext>(0x80);
  EXPECT_FALSE(player_.before(end));
  player_.after(end, CUDA_SUCCESS);
  EXPECT_EQ(player_.stood_aside(), "");
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  // A primary context's end shows only afterwards.
  end.context = reinterpret_cast<CUcontext>(0x8);
  player_.after(end, CUDA_SUCCESS);
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, CapturesAreLeftAlone) {
  bind();
  Call begin = call(CallKind::capture_begin);
  begin.host = HostEffect::observe;
  make(begin);
  step();
  EXPECT_EQ(submitted(), Log(10, "passed"));
  Call end = call(CallKind::capture_end);
  make(end);
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
}

// A second stream's call that ends no capture must not end the first one's, nor one that fails.
TEST_F(StepPlayerTest, ACaptureThatGoesOnIsStillLeftAlone) {
  bind();
  driver_.capturing = {FakeDriver::kOther};
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  begin.host = HostEffect::observe;
  make(begin);
  Call end = call(CallKind::capture_end, FakeDriver::kOther);
  EXPECT_FALSE(player_.before(end));
  player_.after(end, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  Call elsewhere = call(CallKind::capture_end, FakeDriver::kStream);
  EXPECT_FALSE(player_.before(elsewhere));
  player_.after(elsewhere, CUDA_ERROR_ILLEGAL_STATE);
  Call again = call(CallKind::capture_begin, FakeDriver::kOther);
  EXPECT_FALSE(player_.before(again));
  player_.after(again, CUDA_ERROR_ILLEGAL_STATE);
  submitted();
  step();
  EXPECT_EQ(submitted(), Log(9, "passed"));
  // One that was invalidated ends in an error, and is over.
  driver_.capturing = {};
  EXPECT_FALSE(player_.before(end));
  player_.after(end, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
}

// From the moment that the program asks for a capture, before the driver has answered: a capture forbids what binding
// does.
TEST_F(StepPlayerTest, NothingIsBoundWhileACaptureBegins) {
  step();
  submitted();
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  EXPECT_FALSE(player_.before(begin));
  step();
  EXPECT_EQ(submitted(), Log(9, "passed"));
  player_.after(begin, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  step();
  EXPECT_NE(submitted(), Log(9, "passed"));
}

}  // namespace
}  // namespace nimble
