#include "replayer/submit/held_ops.h"

#include <gtest/gtest.h>

#include "replayer/bind/step_memory.h"
#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/schedule_support.h"

namespace nimble {
namespace {

const auto kEvent = reinterpret_cast<CUevent>(0x50);
const auto kOtherEvent = reinterpret_cast<CUevent>(0x51);

// A launch and a record in the first segment, a launch in the second; on two streams, or on one.
Schedule schedule(std::uint32_t streams) {
  Schedule s;
  s.functions = {{"k", {{0, 8}, {8, 4}}}};
  s.objects = {{MemoryKind::device, 64}};
  add_launch(s, 0, 0);
  add_op(s, CallKind::event_record, Submit::graph, 0);
  add_launch(s, 1, 0);
  s.segments = {{0, 1, 1, 0, {{0, 1}}, {0, 1}}, {2, 2, 1, 0, {}, {2}}};
  s.streams.resize(streams);
  if (streams > 1) s.ops[2].stream = 1;
  return s;
}

StreamRef ref(CUstream stream) { return {stream, reinterpret_cast<std::uint64_t>(stream)}; }

class HeldOpsTest : public testing::Test {
 protected:
  explicit HeldOpsTest(std::uint32_t streams = 1) : schedule_(schedule(streams)) {
    streams_.use_context(reinterpret_cast<CUcontext>(0x8));
    streams_.set(0, ref(FakeDriver::kStream));
    if (streams > 1) streams_.set(1, ref(FakeDriver::kOther));
  }

  static Call call(CallKind kind, CUstream stream = FakeDriver::kStream, CUevent event = nullptr) {
    Call c;
    c.kind = kind;
    c.traced = c.has_stream = true;
    c.stream = ref(stream);
    c.event = event;
    return c;
  }
  void hold(std::uint32_t index, bool changed = false) {
    Call c = call(schedule_.ops[index].kind, FakeDriver::kStream, index == 1 ? kEvent : nullptr);
    if (index == 1) {
      EXPECT_EQ(live_.match(index, c), nullptr);
    }
    held_.hold(index, c, changed);
  }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  const Schedule schedule_;
  StepMemory memory_{schedule_};
  OpMatch live_{schedule_, driver_, memory_.map(), memory_.objects(), Reach()};
  StepStreams streams_{schedule_, driver_, api_};
  HeldOps held_{schedule_, driver_, live_, streams_};
};

class HeldOpsOfTwoStreams : public HeldOpsTest {
 protected:
  HeldOpsOfTwoStreams() : HeldOpsTest(2) {}
};

TEST_F(HeldOpsTest, ANumberChangesWithEachOpThatIsHeld) {
  EXPECT_EQ(held_.holding(), 0u);
  hold(0);
  const std::uint64_t first = held_.holding();
  hold(1);
  EXPECT_NE(held_.holding(), first);
  EXPECT_NE(held_.holding(), 0u);
  held_.clear();
  EXPECT_EQ(held_.holding(), 0u);
  EXPECT_TRUE(held_.empty());
}

TEST_F(HeldOpsTest, WhileNothingIsHeldNothingShows) {
  EXPECT_FALSE(held_.shows(call(CallKind::stream_synchronize)));
  EXPECT_FALSE(held_.shows(call(CallKind::context_synchronize)));
}

TEST_F(HeldOpsTest, ACallOnTheirStreamShowsThem) {
  hold(0);
  EXPECT_TRUE(held_.shows(call(CallKind::stream_synchronize)));
  EXPECT_FALSE(held_.shows(call(CallKind::stream_synchronize, FakeDriver::kOther)));
  EXPECT_TRUE(held_.shows(call(CallKind::context_synchronize)));
  EXPECT_FALSE(held_.shows(call(CallKind::event_synchronize, FakeDriver::kStream, kEvent)));
}

TEST_F(HeldOpsTest, SoDoesWhatAsksAboutAnEventThatTheyRecord) {
  hold(1);
  EXPECT_TRUE(held_.has_record(kEvent));
  EXPECT_FALSE(held_.has_record(nullptr));
  EXPECT_TRUE(held_.shows(call(CallKind::event_synchronize, FakeDriver::kOther, kEvent)));
  EXPECT_FALSE(held_.shows(call(CallKind::event_synchronize, FakeDriver::kOther, kOtherEvent)));
  EXPECT_TRUE(held_.shows(call(CallKind::event_wait, FakeDriver::kOther, kEvent)));
  EXPECT_TRUE(held_.shows(call(CallKind::graph_launch, FakeDriver::kOther)));
}

TEST_F(HeldOpsTest, AllThatWereChangedArePatchedOnce) {
  hold(0, true);
  hold(1, false);
  std::vector<std::uint32_t> patched;
  held_.patch_changed(0, [&](std::uint32_t index) { patched.push_back(index); });
  held_.patch_changed(0, [&](std::uint32_t index) { patched.push_back(index); });
  EXPECT_EQ(patched, std::vector<std::uint32_t>{0});
}

TEST_F(HeldOpsOfTwoStreams, ASegmentIsTakenAndTheOthersStay) {
  hold(2, true);  // of the second segment, and came first
  hold(0, true);
  hold(1);
  EXPECT_TRUE(held_.any_before(1));
  EXPECT_EQ(held_.take(0), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(held_.taken(), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_FALSE(held_.has_record(kEvent));
  EXPECT_FALSE(held_.any_before(2));
  std::vector<std::uint32_t> patched;
  held_.patch_changed(1, [&](std::uint32_t index) { patched.push_back(index); });
  EXPECT_EQ(patched, std::vector<std::uint32_t>{2});
  EXPECT_EQ(held_.take_all(), std::vector<std::uint32_t>{2});
  EXPECT_TRUE(held_.empty());
}

}  // namespace
}  // namespace nimble
