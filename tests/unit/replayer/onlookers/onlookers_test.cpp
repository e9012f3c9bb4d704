#include "replayer/onlookers/onlookers.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/replayer/onlookers/onlookers_support.h"

namespace nimble {
namespace {

using namespace order;  // NOLINT(google-build-using-namespace)

TEST_F(OnlookersTest, AnOpThatTouchesTheSameMeetsWhatMayRun) {
  EXPECT_FALSE(make(copy(kB, 2, 7)));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  ASSERT_TRUE(launch());
  EXPECT_FALSE(make(copy(kB, 1, 7)));  // both read
  EXPECT_FALSE(make(copy(kB, 6, 7)));
  EXPECT_TRUE(make(copy(kB, 2, 7)));
  EXPECT_TRUE(make(copy(kB, 7, 1)));
  EXPECT_FALSE(make(copy(kA, 7, 1)));  // after it on its stream
  record(kA, event(1));
  wait(kC, event(1));
  EXPECT_FALSE(make(copy(kC, 2, 7)));
}

TEST_F(OnlookersTest, WhatMayBeRunningIsLaunchedInNoOrderOfOurs) {
  make(copy(kB, 2, 7));
  EXPECT_FALSE(launch());
  record(kB, event(1));
  wait(kA, event(1));
  EXPECT_TRUE(launch());
  EXPECT_FALSE(launch(kC));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  EXPECT_TRUE(launch(kC));
}

TEST_F(OnlookersTest, EventsThatMayHaveBeenRecordedByAnythingOrderNothing) {
  make(copy(kB, 2, 7));
  record(kB, event(1));
  Call opaque = copy(kC, 0, 0);
  opaque.kind = CallKind::opaque;
  make(opaque);
  make(of_event(CallKind::stream_synchronize, kC, nullptr));
  wait(kA, event(1));
  EXPECT_FALSE(launch());
}

TEST_F(OnlookersTest, EventsThatALaunchRecordsByItsAttributesAreNotWhatTheyWere) {
  make(copy(kA, 0, 9));
  record(kA, event(1));
  Call kernel = copy(kB, 2, 9);
  kernel.event = event(1);
  make(kernel);
  make(of_event(CallKind::event_synchronize, kA, event(1)));
  EXPECT_FALSE(launch(kC));
}

TEST_F(OnlookersTest, WhatACaptureCollectsDoesNotRunAndOrdersNothing) {
  make(copy(kB, 2, 7));
  record(kB, event(1));
  const auto of_capture = [&](CallKind kind) {
    Call call = copy(kC, 0, 0);
    call.kind = kind;
    return call;
  };
  make(of_capture(CallKind::capture_begin));
  Context::capturing = kC.ref.handle;
  ASSERT_FALSE(make(copy(kC, 2, 1)));
  wait(kC, event(1));
  record(kC, event(1));
  wait(kA, event(1));
  EXPECT_FALSE(launch(kA));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  EXPECT_TRUE(launch(kA));
  make(of_capture(CallKind::capture_end), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_FALSE(make(copy(kC, 2, 1)));
  Context::capturing = nullptr;
  EXPECT_FALSE(make(of_capture(CallKind::capture_end), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
  EXPECT_TRUE(make(copy(kC, 2, 1)));
}

TEST_F(OnlookersTest, OnceOthersMayLookAtAnyTimeAllKeepsTheProgramsOrder) {
  ASSERT_TRUE(launch());
  Call peer;
  peer.kind = CallKind::hidden;
  peer.traced = peer.shown = true;
  EXPECT_TRUE(make(peer));
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  EXPECT_FALSE(launch());
}

TEST_F(OnlookersTest, MemoryThatIsReleasedMayBeAnybodysNext) {
  Call kernel = copy(kB, 7, 2);
  kernel.transfer.dst.address = cell(2);
  make(kernel);
  EXPECT_FALSE(launch());
  Call release;
  release.kind = CallKind::free_async;
  release.traced = release.has_stream = true;
  release.stream = kB.ref;
  release.memory.address = cell(2);
  make(release);
  EXPECT_TRUE(launch());
}

TEST_F(OnlookersTest, ACallThatNeverComesBackIsForgotten) {
  Onlookers::Works met;
  Call lost = copy(kB, 2, 7), wait_for_it = of_event(CallKind::stream_synchronize, kB, nullptr);
  onlookers_.passes(lost, met);
  onlookers_.passes(wait_for_it, met);
  onlookers_.passed(wait_for_it, CUDA_SUCCESS);
  record(kB, event(1));
  wait(kA, event(1));
  EXPECT_TRUE(launch());
}

TEST_F(OnlookersTest, ItIsWaitedForOnceAndForAll) {
  ASSERT_TRUE(launch());
  graph_->through = false;
  graph_->ends_when_asked = [this] { graph_->through = graph_->asked > 3; };
  Onlookers::Works met;
  const Call call = copy(kB, 2, 7);
  onlookers_.went(call, CUDA_SUCCESS, onlookers_.comes(call, met));
  onlookers_.wait_for(met);
  EXPECT_EQ(graph_->asked, 4);
  EXPECT_FALSE(onlookers_.may_run(*graph_));
  EXPECT_FALSE(make(copy(kB, 2, 7)));
  EXPECT_TRUE(onlookers_.running().empty());
}

TEST_F(OnlookersTest, WhatWaitsForTheVeryOpIsWaitedForInVain) {
  ASSERT_TRUE(launch());
  graph_->through = false;
  Onlookers::Works met;
  const Call call = copy(kB, 2, 7);
  onlookers_.went(call, CUDA_SUCCESS, onlookers_.comes(call, met));
  onlookers_.wait_for(met);
  EXPECT_FALSE(onlookers_.may_run(*graph_));
}

TEST_F(OnlookersTest, MemoryThatItHasUsedCountsUntilTheLastLaunchThatDidIsThrough) {
  ASSERT_TRUE(launch());
  record(kA, event(1));
  const MemoryRange other[] = {range(3, true)};
  onlookers_.uses(graph_, other, false, false);
  ASSERT_TRUE(launch());
  EXPECT_TRUE(make(copy(kB, 7, 2)));
  wait(kC, event(1));
  EXPECT_FALSE(make(copy(kC, 7, 2)));  // as a buffer is filled that only the launch before used
  EXPECT_TRUE(make(copy(kC, 7, 3)));
  onlookers_.released(cell(2), kCell);
  EXPECT_FALSE(make(copy(kB, 7, 2)));
}

TEST_F(OnlookersTest, WhatEndsWhileItRunsIsStillMet) {
  ASSERT_TRUE(launch());
  std::weak_ptr<Graph> left = graph_;
  onlookers_.leave(graph_);
  graph_.reset();
  EXPECT_TRUE(make(copy(kB, 2, 7)));
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  EXPECT_FALSE(make(copy(kB, 2, 7)));
  EXPECT_TRUE(left.expired());
}

TEST_F(OnlookersTest, TwoThatMeetWaitForEachOther) {
  const auto other = std::make_shared<Graph>();
  const MemoryRange memory[] = {range(2, true)};
  onlookers_.uses(other, memory, false, false);
  ASSERT_TRUE(launch());
  Onlookers::Works met;
  EXPECT_FALSE(onlookers_.begins(other, kB.ref, {}, met));
  EXPECT_TRUE(met.has(graph_.get()));
  met = {};
  const auto later = onlookers_.begins(other, kA.ref, {}, met);
  ASSERT_TRUE(later);
  onlookers_.begun(other, *later, true, /*in_our_order=*/false);
  // The program's own of the two is an op as any.
  EXPECT_FALSE(launch(kC));
}

TEST_F(OnlookersTest, AnyNumberMayHaveToBeWaitedFor) {
  const MemoryRange memory[] = {range(2, false)};
  std::vector<std::shared_ptr<Graph>> graphs(20);
  for (auto& graph : graphs) {
    graph = std::make_shared<Graph>();
    onlookers_.uses(graph, memory, false, false);
    Onlookers::Works met;
    const auto launch = onlookers_.begins(graph, kA.ref, {}, met);
    ASSERT_TRUE(launch);
    onlookers_.begun(graph, *launch, true, true);
  }
  Onlookers::Works met;
  const Call call = copy(kB, 7, 2);
  onlookers_.went(call, CUDA_SUCCESS, onlookers_.comes(call, met));
  onlookers_.wait_for(met);
  for (const auto& graph : graphs) {
    EXPECT_TRUE(met.has(graph.get()));
    EXPECT_FALSE(onlookers_.may_run(*graph));
  }
}

TEST_F(OnlookersTest, OfSomeOpsNothingIsKnown) {
  Call graph = copy(kB, 0, 0);
  graph.kind = CallKind::graph_launch;
  make(graph);
  EXPECT_FALSE(launch());
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  for (int i = 0; i < 120; ++i) make(copy(kB, 1, 200 + i));
  EXPECT_FALSE(launch());  // more than are remembered
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  for (int i = 0; i < 1000; ++i) make(copy(kB, 1, 200 + i % 8));
  EXPECT_TRUE(launch());
}

// ---- ops that take no lock ----

TEST_F(OnlookersTest, WhatTouchesNothingThatIsUsedPassesUnseen) {
  const auto is_unseen = [&](Call call) {
    const bool unseen = onlookers_.passes_unseen(call);
    if (unseen) onlookers_.passed(call, CUDA_SUCCESS);
    return unseen;
  };
  EXPECT_FALSE(is_unseen(copy(kB, 6, 7)));  // its stream is not known yet
  make(copy(kB, 6, 7));
  EXPECT_TRUE(is_unseen(copy(kB, 6, 7)));
  EXPECT_FALSE(is_unseen(copy(kB, 1, 7)));
  EXPECT_FALSE(is_unseen(copy(kB, 7, 2)));
  Call waited = copy(kB, 6, 7);
  waited.host = HostEffect::observe;
  waited.transfer.device_source = true;
  EXPECT_FALSE(is_unseen(waited));
  Call recording = copy(kB, 6, 7);
  recording.event = event(1);
  EXPECT_FALSE(is_unseen(recording));
  Call graph = copy(kB, 6, 7);
  graph.kind = CallKind::graph_launch;
  EXPECT_FALSE(is_unseen(graph));
  EXPECT_FALSE(is_unseen(of_event(CallKind::event_record, kB, event(1))));
  ASSERT_TRUE(launch());
  EXPECT_TRUE(is_unseen(copy(kB, 6, 7)));
}

TEST_F(OnlookersTest, WhatHasPassedUnseenIsFoundByWhatIsUsedLater) {
  make(copy(kB, 6, 7));
  make(copy(kB, 6, 7));
  ASSERT_TRUE(launch());
  const MemoryRange more[] = {range(1, false), range(2, true), range(7, false)};
  onlookers_.uses(graph_, more, false, false);
  EXPECT_FALSE(launch(kC));
  record(kB, event(1));
  wait(kC, event(1));
  EXPECT_TRUE(launch(kC));
}

TEST_F(OnlookersTest, WhatIsOnItsWayUnseenIsBeforeNothing) {
  make(copy(kB, 6, 7));
  Call call = copy(kB, 6, 7);
  ASSERT_TRUE(onlookers_.passes_unseen(call));
  const MemoryRange more[] = {range(7, false)};
  onlookers_.uses(graph_, more, false, false);
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  EXPECT_FALSE(launch());
  onlookers_.passed(call, CUDA_SUCCESS);
  EXPECT_FALSE(launch());  // the host has not waited for it yet
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  EXPECT_TRUE(launch());
}

TEST_F(OnlookersTest, WhatHasPassedUnseenGoesOnWhereItsStreamHasEnded) {
  make(copy(kB, 6, 7));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  make(copy(kB, 6, 7));
  Call end = of_event(CallKind::opaque, kB, nullptr);
  end.traced = false;
  end.ends = Ends::stream;
  make(end);
  make(copy(kC, 6, 8));
  const MemoryRange more[] = {range(7, false)};
  onlookers_.uses(graph_, more, false, false);
  make(of_event(CallKind::stream_synchronize, kC, nullptr));
  EXPECT_FALSE(launch());
}

TEST_F(OnlookersTest, WhatIsUsedFromJustNowOnIsSeen) {
  make(copy(kB, 6, 7));
  std::uint64_t address = cell(7);
  void* parameters[] = {&address};
  Call call = copy(kB, 0, 0);
  call.kind = CallKind::launch;
  call.launch.kernel_params = parameters;
  Call again = call;
  EXPECT_TRUE(onlookers_.passes_unseen(again));
  onlookers_.passed(again, CUDA_SUCCESS);
  context_.asked = [&] {  // while it looks at what the kernel's parameters lead to
    const MemoryRange more[] = {range(7, false)};
    onlookers_.uses(graph_, more, false, false);
  };
  EXPECT_FALSE(onlookers_.passes_unseen(call));
}

TEST_F(OnlookersTest, AnOpWhoseStreamsPlaceGoesToAnotherIsSeen) {
  make(copy(kB, 6, 7));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  std::uint64_t address = cell(7);
  void* parameters[] = {&address};
  Call call = copy(kB, 0, 0);
  call.kind = CallKind::launch;
  call.launch.kernel_params = parameters;
  context_.asked = [&] {
    Call end;
    end.kind = CallKind::context_end;
    end.traced = true;
    make(end);
    make(copy(kC, 6, 8));
  };
  EXPECT_FALSE(onlookers_.passes_unseen(call));
}

TEST_F(OnlookersTest, WhatNothingUsesAnyMoreIsNotWatched) {
  make(copy(kB, 6, 7));
  Call call = copy(kB, 1, 7);
  EXPECT_FALSE(onlookers_.passes_unseen(call));
  onlookers_.leave(graph_);
  for (int i = 0; i < 100; ++i) {
    const auto other = std::make_shared<Graph>();
    const MemoryRange memory[] = {range(3, true)};
    onlookers_.uses(other, memory, false, false);
    onlookers_.leave(other);
  }
  EXPECT_TRUE(onlookers_.passes_unseen(call));
}

}  // namespace
}  // namespace nimble
