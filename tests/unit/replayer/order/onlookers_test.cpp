#include "replayer/order/onlookers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/order/truth.h"

namespace nimble {
namespace {

using namespace order;  // NOLINT(google-build-using-namespace)

// Kinds by the streams of truth.h; contexts are not asked for.
class Context final : public CallContext {
 public:
  Context() {
    function_.param_bytes = 8;
    function_.params = {{0, 8}};
    function_.self_contained = true;
  }
  const FunctionInfo& function(CUfunction) override {
    if (asked) std::exchange(asked, nullptr)();
    return function_;
  }
  StreamKind stream_kind(const StreamRef& stream) override {
    for (const Stream& each : {kA, kB, kC, kLegacy, kBlocking, kThreads})
      if (each.ref == stream) return each.kind;
    return StreamKind::non_blocking;
  }
  void* driver_symbol(const char* name) override {
    if (std::string_view(name) != "cuStreamIsCapturing") return nullptr;
    const decltype(&::cuStreamIsCapturing) ask = [](CUstream stream, CUstreamCaptureStatus* status) {
      *status = stream == capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    return reinterpret_cast<void*>(ask);
  }
  static inline CUstream capturing = nullptr;
  std::function<void()> asked;  // once

 private:
  FunctionInfo function_;
};

class Graph final : public Onlookers::Work {
 public:
  explicit Graph(Gated gated = Gated::no, bool records = false) : RelaxedWork(0, records, gated) {}
  bool is_through() noexcept override {
    ++asked;
    if (ends_when_asked) ends_when_asked();
    return through;
  }
  bool through = true;
  int asked = 0;
  std::function<void()> ends_when_asked;
};

constexpr std::uint64_t kCell = 0x1000;
constexpr std::uint64_t cell(int number) { return 0x100000 + static_cast<std::uint64_t>(number) * kCell; }
MemoryRange range(int number, bool written) { return {cell(number), cell(number) + kCell, written}; }

Call copy(const Stream& on, int from, int to) {
  Call call;
  call.kind = CallKind::copy;
  call.host = HostEffect::async;
  call.traced = call.has_stream = true;
  call.stream = on.ref;
  call.dst.address = cell(to) + 8;
  call.src.address = cell(from);
  call.width = 16;
  return call;
}

Call of_event(CallKind kind, const Stream& on, CUevent what) {
  Call call;
  call.kind = kind;
  call.traced = call.has_stream = true;
  call.stream = on.ref;
  call.event = what;
  return call;
}

class OnlookersTest : public testing::Test {
 protected:
  OnlookersTest() {
    onlookers_.expect();
    const MemoryRange memory[] = {range(1, false), range(2, true)};
    onlookers_.uses(graph_, memory, false, false);
  }
  // Whether it has to wait.
  bool make(Call call, CUresult result = CUDA_SUCCESS) {
    if (onlookers_.passes_unseen(call)) {
      onlookers_.passed(call, result);
      return false;
    }
    Onlookers::Works met;
    const Onlookers::Passage passage = onlookers_.comes(call, met);
    onlookers_.went(call, result, passage);
    return !met.empty();
  }
  bool launch(const Stream& on = kA) {
    Onlookers::Works met;
    const auto launch = onlookers_.begins(graph_, on.ref, {}, met);
    if (launch) onlookers_.begun(graph_, *launch, true, true);
    return launch.has_value();
  }
  void record(const Stream& on, CUevent what) { make(of_event(CallKind::event_record, on, what)); }
  void wait(const Stream& on, CUevent what) { make(of_event(CallKind::event_wait, on, what)); }

  Context context_;
  Onlookers onlookers_{context_};
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
};

TEST_F(OnlookersTest, AnOpThatTouchesTheSameMeetsWhatMayRun) {
  EXPECT_FALSE(make(copy(kB, 2, 7)));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  ASSERT_TRUE(launch());
  EXPECT_FALSE(make(copy(kB, 1, 7)));  // both read
  EXPECT_FALSE(make(copy(kB, 6, 7)));
  EXPECT_TRUE(make(copy(kB, 2, 7)));
  EXPECT_TRUE(make(copy(kB, 7, 1)));
  EXPECT_FALSE(make(copy(kA, 7, 1)));  // behind it on its stream
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
  kernel.dst.address = cell(2);
  make(kernel);
  EXPECT_FALSE(launch());
  Call release;
  release.kind = CallKind::free_async;
  release.traced = release.has_stream = true;
  release.stream = kB.ref;
  release.address = cell(2);
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
  const auto behind = onlookers_.begins(other, kA.ref, {}, met);
  ASSERT_TRUE(behind);
  onlookers_.begun(other, *behind, true, /*in_our_order=*/false);
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
  waited.device_source = true;
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
  call.kernel_params = parameters;
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
  call.kernel_params = parameters;
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

// ---- launches that take no lock ----

class GatesTest : public OnlookersTest {
 protected:
  GatesTest() { use(graph_ = std::make_shared<Graph>(Onlookers::Work::Gated::yes)); }
  void use(const std::shared_ptr<Graph>& graph) {
    const MemoryRange memory[] = {range(1, false), range(2, true)};
    onlookers_.uses(graph, memory, false, false);
  }
  enum class Way { by_gate, by_lock, not_at_all };
  Way begin(const std::shared_ptr<Graph>& graph, const Stream& on) {
    Onlookers::Works met;
    const auto launch = onlookers_.begins(graph, on.ref, {}, met);
    if (!launch) return Way::not_at_all;
    onlookers_.begun(graph, *launch, true, true);
    return launch->is_by_gate() ? Way::by_gate : Way::by_lock;
  }
  Way begin(const Stream& on = kA) { return begin(graph_, on); }
};

TEST_F(GatesTest, WhereNothingHasComeALaunchFollowsTheLastOne) {
  EXPECT_EQ(begin(), Way::by_lock);
  EXPECT_EQ(begin(), Way::by_gate);
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  EXPECT_EQ(begin(), Way::by_gate);
  make(copy(kB, 6, 7));  // the first on its stream
  make(copy(kB, 6, 7));
  make(copy(kA, 2, 7));  // on its own stream
  record(kB, event(1));
  EXPECT_EQ(begin(), Way::by_lock);  // a stream was new
  EXPECT_EQ(begin(), Way::by_gate);
  make(copy(kB, 6, 7));
  make(copy(kA, 2, 7));
  record(kB, event(1));
  EXPECT_EQ(begin(), Way::by_gate);
}

TEST_F(GatesTest, ALaunchByTheGateIsMet) {
  begin();
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  EXPECT_EQ(begin(), Way::by_gate);
  EXPECT_TRUE(onlookers_.may_run(*graph_));
  EXPECT_TRUE(make(copy(kB, 2, 7)));
  EXPECT_EQ(begin(), Way::not_at_all);
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  EXPECT_EQ(begin(), Way::by_lock);
  EXPECT_EQ(begin(), Way::by_gate);
  record(kA, event(1));
  wait(kB, event(1));
  EXPECT_FALSE(make(copy(kB, 2, 7)));
}

TEST_F(GatesTest, OneThatIsUnderWayIsBeforeNothing) {
  begin();
  ASSERT_TRUE(Onlookers::enter_gate(*graph_, kA.ref));
  EXPECT_EQ(begin(), Way::by_lock);  // one at a time
  record(kA, event(1));
  wait(kB, event(1));
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  EXPECT_TRUE(make(copy(kB, 2, 7)));
  Onlookers::leave_gate(*graph_);
  EXPECT_TRUE(make(copy(kB, 2, 7)));
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  EXPECT_FALSE(make(copy(kB, 2, 7)));
}

TEST_F(GatesTest, WhatMayNotBeSoAnyMoreClosesTheGate) {
  const auto closes = [&](const auto& what) {
    begin();
    EXPECT_EQ(begin(), Way::by_gate);
    what();
    return begin() != Way::by_gate;
  };
  EXPECT_TRUE(closes([&] { begin(kB); }));
  EXPECT_TRUE(closes([&] { use(graph_); }));
  EXPECT_TRUE(closes([&] {
    const auto other = std::make_shared<Graph>(Onlookers::Work::Gated::yes);
    use(other);
    begin(other, kC);
  }));
  make(of_event(CallKind::stream_synchronize, kC, nullptr));
  EXPECT_TRUE(closes([&] {
    Call end = of_event(CallKind::opaque, kA, nullptr);
    end.traced = false;
    end.ends = Ends::stream;
    make(end);
  }));
  EXPECT_TRUE(closes([&] {
    Call end;
    end.kind = CallKind::context_end;
    end.traced = true;
    make(end);
  }));
  EXPECT_TRUE(closes([&] {  // in the program's order, which is another graph
    Call call = copy(kA, 0, 0);
    call.kind = CallKind::graph_launch;
    Onlookers::Works met;
    onlookers_.went(call, CUDA_SUCCESS, onlookers_.comes(call, met, graph_));
  }));
  EXPECT_TRUE(closes([&] { onlookers_.close_gate(*graph_); }));
  EXPECT_TRUE(closes([&] {
    Call peer;
    peer.kind = CallKind::hidden;
    peer.traced = peer.shown = true;
    EXPECT_TRUE(make(peer));
  }));
  EXPECT_EQ(begin(), Way::not_at_all);
}

TEST_F(GatesTest, OfStreamsThatTheLegacyOneOrdersEachLaunchIsLookedAt) {
  begin(kBlocking);
  EXPECT_EQ(begin(kBlocking), Way::by_gate);
  make(copy(kLegacy, 6, 7));
  EXPECT_EQ(begin(kBlocking), Way::by_lock);
  EXPECT_EQ(begin(kBlocking), Way::by_lock);
}

TEST_F(GatesTest, AnEventThatALaunchMayRecordIsNotWhatItWas) {
  const auto recording = std::make_shared<Graph>(Onlookers::Work::Gated::yes, /*records=*/true);
  use(recording);
  begin(recording, kA);
  make(copy(kB, 2, 9));
  record(kB, event(1));
  make(of_event(CallKind::stream_synchronize, kA, nullptr));
  make(of_event(CallKind::stream_synchronize, kB, nullptr));
  begin(recording, kA);
  EXPECT_EQ(begin(recording, kA), Way::by_gate);
  make(copy(kC, 6, 9));
  record(kC, event(1));
  EXPECT_NE(begin(recording, kA), Way::by_gate);  // it may record the event anew
  wait(kB, event(1));
  EXPECT_TRUE(make(copy(kB, 2, 9)));
}

TEST_F(GatesTest, MoreWorksThanThereAreGates) {
  std::vector<std::shared_ptr<Graph>> graphs(StreamClocks::kMostGates + 5);
  for (auto& graph : graphs) use(graph = std::make_shared<Graph>(Onlookers::Work::Gated::yes));
  std::size_t by_gate = 0;
  for (int i = 0; i < 2; ++i)
    for (const auto& graph : graphs) by_gate += begin(graph, kA) == Way::by_gate;
  EXPECT_EQ(by_gate, StreamClocks::kMostGates);
  for (const auto& graph : graphs) onlookers_.leave(graph);
  use(graph_);
  begin();
  EXPECT_EQ(begin(), Way::by_gate);
  EXPECT_TRUE(make(copy(kB, 2, 9)));
}

// One thread launches, the other one copies: never do the two run at once.
TEST_F(GatesTest, ThreadsThatTakeTheGateAndCloseItDoNotMeet) {
  struct State {
    std::atomic<bool> launched{false}, copied{false}, over{false};
    std::atomic<int> by_gate{0}, wrong{0};
  } state;
  class Running final : public Onlookers::Work {
   public:
    explicit Running(State& state) : RelaxedWork(0, false, Gated::yes), state_(state) {}
    bool is_through() noexcept override { return !state_.launched; }

   private:
    State& state_;
  };
  const auto work = std::make_shared<Running>(state);
  const MemoryRange memory[] = {range(2, true)};
  onlookers_.uses(work, memory, false, false);
  std::thread launches([&] {
    while (!state.over) {
      Onlookers::Works met;
      const auto launch = onlookers_.begins(work, kA.ref, {}, met);
      if (!launch) continue;
      state.launched = true;
      state.wrong += state.copied;
      onlookers_.begun(work, *launch, true, true);
      state.by_gate += launch->is_by_gate();
      state.wrong += state.copied;
      state.launched = false;
    }
  });
  for (int i = 0; i < 3000 || state.by_gate < 3000; ++i) {
    Onlookers::Works met;
    const Call call = copy(kB, 2, 7);
    const Onlookers::Passage passage = onlookers_.comes(call, met);
    onlookers_.wait_for(met);
    state.copied = true;
    state.wrong += state.launched;
    onlookers_.went(call, CUDA_SUCCESS, passage);
    state.copied = false;
    make(of_event(CallKind::stream_synchronize, kB, nullptr));
    for (const int seen = state.by_gate; i % 4 == 0 && state.by_gate < seen + 5;) std::this_thread::yield();
  }
  state.over = true;
  launches.join();
  EXPECT_EQ(state.wrong, 0);
}

// ---- against the definition ----

// Threads of the program's that copy, launch kernels and graphs, and wait, each call taken by the driver at some moment
// between its two ends. Whenever two things may run at once by what the program and Nimble have waited for, and one of
// them is a graph in an order of ours, they touch nothing in common.
class World {
 public:
  // `stay`: graphs are often launched where they were before, and no stream waits for another by itself.
  World(unsigned seed, std::size_t threads, bool stay = false)
      : random_(seed), moves_(seed % 2 == 0), streams_(stay ? 3 : kStreams.size()), calls_(threads) {
    onlookers_.expect();
    for (std::size_t i = 0; i < graphs_.size(); ++i) {
      graphs_[i] = std::make_shared<Graph>(seed % 3 == 0 ? Onlookers::Work::Gated::no : Onlookers::Work::Gated::yes);
      // Whoever asks finds it through: all that the driver has had of it.
      graphs_[i]->ends_when_asked = [this, i] {
        for (const Op& op : ops_)
          if (op.relaxed && op.graph == static_cast<int>(i)) truth_.done.insert(op.number);
      };
      change_memory(i);
    }
  }

  // What went wrong; empty where nothing did.
  std::string run(int turns) {
    for (int turn = 0; turn < turns && wrong_.empty(); ++turn) advance(calls_[below(calls_.size())]);
    return wrong_;
  }
  int relaxed = 0, by_gate = 0, in_order = 0, waits = 0, needless = 0, unseen = 0;

 private:
  static constexpr int kCells = 6;
  enum class What { copy, kernel, launch, record, wait, sync_stream, sync_event };
  struct Op {
    int number = 0;
    std::vector<MemoryRange> memory;
    int graph = -1;
    bool relaxed = false;
  };
  struct Made {
    int stage = 0;  // none, on its way, to be taken, taken
    What what = What::copy;
    Stream on;
    Call call;
    std::size_t graph = 0;
    Op op;
    std::optional<Onlookers::Launch> launch;
    Onlookers::Passage passage;
    Onlookers::Works met;
    CUevent event = nullptr;
    std::uint64_t address = 0;  // the parameter of a kernel
    void* parameters[1] = {};
  };

  std::size_t below(std::size_t n) { return random_() % n; }

  void change_memory(std::size_t i) {
    memory_[i].clear();
    for (int c = 0; c < kCells; ++c)
      if (below(kCells / 2) == 0) memory_[i].push_back(range(c, below(2) == 0));
    onlookers_.uses(graphs_[i], memory_[i], false, false);
  }

  void advance(Made& made) {
    switch (made.stage) {
      case 0:
        begin(made);
        made.stage = 1;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      case 1:
        for (const auto& graph : graphs_)
          if (made.met.has(graph.get()) && is_on_its_way(graph)) return;
        waits += !made.met.empty();
        onlookers_.wait_for(made.met);
        made.stage = 2;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      case 2:
        take(made);
        made.stage = 3;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      default:
        if (made.launch) {
          onlookers_.begun(graphs_[made.graph], *made.launch, true, true);
        } else if (made.call.unseen != 0) {
          onlookers_.passed(made.call, CUDA_SUCCESS);
        } else {
          onlookers_.went(made.call, CUDA_SUCCESS, made.passage);
        }
        made = {};
    }
  }

  bool is_on_its_way(const std::shared_ptr<Graph>& graph) const {
    return std::ranges::any_of(
        calls_, [&](const Made& each) { return each.stage != 0 && each.launch && graphs_[each.graph] == graph; });
  }

  void begin(Made& made) {
    constexpr What kWhats[] = {What::copy,   What::kernel, What::kernel, What::launch,      What::launch,
                               What::record, What::record, What::wait,   What::sync_stream, What::sync_event};
    made.what = kWhats[below(below(3) == 0 ? 10 : 8)];
    made.on = kStreams[below(streams_)];
    made.event = event(below(4));
    switch (made.what) {
      case What::copy: {
        const int from = static_cast<int>(below(kCells)), to = static_cast<int>(below(kCells));
        made.call = copy(made.on, from, to);
        made.op.memory = {range(from, false), range(to, true)};
        break;
      }
      case What::kernel: {
        const int there = static_cast<int>(below(kCells));
        made.address = cell(there) + below(kCell);
        made.parameters[0] = &made.address;
        made.call = copy(made.on, 0, 0);
        made.call.kind = CallKind::launch;
        made.call.kernel_params = made.parameters;
        made.op.memory = {range(there, true)};
        break;
      }
      case What::launch:
        made.graph = below(graphs_.size());
        // The driver runs one launch of a graph after another.
        if (std::ranges::any_of(calls_, [&](const Made& each) {
              return &each != &made && each.what == What::launch && each.stage != 0 && each.graph == made.graph;
            }))
          return begin(made);
        if (moves_ && below(4) == 0) change_memory(made.graph);
        if (streams_ < kStreams.size() && below(2) == 0) made.on = kStreams[made.graph];
        made.op.memory = memory_[made.graph];
        made.op.graph = static_cast<int>(made.graph);
        made.launch = onlookers_.begins(graphs_[made.graph], made.on.ref, {}, made.met);
        if (made.launch) {
          made.op.relaxed = true;
          ++relaxed;
          by_gate += made.launch->is_by_gate();
          return;
        }
        ++in_order;
        needless += calls_.size() == 1 && !is_met(made.op, made.on, true);
        made.call = copy(made.on, 0, 0);
        made.call.kind = CallKind::graph_launch;
        made.passage = onlookers_.comes(made.call, made.met, graphs_[made.graph]);
        return;
      case What::record:
        made.call = of_event(CallKind::event_record, made.on, made.event);
        break;
      case What::wait:
        made.call = of_event(CallKind::event_wait, made.on, made.event);
        break;
      case What::sync_stream:
        made.call = of_event(CallKind::stream_synchronize, made.on, nullptr);
        break;
      case What::sync_event:
        made.call = of_event(CallKind::event_synchronize, made.on, made.event);
        break;
    }
    if (onlookers_.passes_unseen(made.call)) {
      ++unseen;
      return;
    }
    made.passage = onlookers_.comes(made.call, made.met);
    needless += calls_.size() == 1 && !made.met.empty() && !is_met(made.op, made.on, false);
  }

  static bool conflict(const Op& one, const Op& other) {
    return std::ranges::any_of(one.memory, [&](const MemoryRange& a) {
      return std::ranges::any_of(other.memory, [&](const MemoryRange& b) { return nimble::conflict(a, b); });
    });
  }
  // Whether something that may still be running when the op comes touches what it touches, where one of the two is in
  // our order.
  bool is_met(const Op& op, const Stream& on, bool in_our_order) const {
    const auto before = truth_.before(on);
    return std::ranges::any_of(ops_, [&](const Op& other) {
      return (in_our_order || other.relaxed) && other.graph != (op.graph < 0 ? -2 : op.graph) &&
             !before.contains(other.number) && conflict(op, other);
    });
  }

  void take(Made& made) {
    switch (made.what) {
      case What::copy:
      case What::kernel:
      case What::launch: {
        if (is_met(made.op, made.on, made.op.relaxed))
          wrong_ = "op " + std::to_string(ops_.size()) + (made.op.relaxed ? ", a graph in our order," : "") +
                   " meets another";
        made.op.number = static_cast<int>(ops_.size());
        truth_.op(made.op.number, made.on);
        ops_.push_back(made.op);
        if (made.op.graph >= 0) {
          // Behind the launches before.
          for (const Op& other : ops_)
            if (other.graph == made.op.graph) truth_.joins(other.number, made.on);
        }
        return;
      }
      case What::record:
        return truth_.record(made.event, made.on);
      case What::wait:
        return truth_.wait(made.on, made.event);
      case What::sync_stream:
        return truth_.host_waits(made.on);
      case What::sync_event:
        return truth_.host_waits(made.event);
    }
  }

  inline static const std::vector<Stream> kStreams = {kA, kB, kC, kLegacy, kBlocking, kThreads};
  std::mt19937 random_;
  const bool moves_;           // whether the memory of graphs does
  const std::size_t streams_;  // how many are used
  Context context_;
  Onlookers onlookers_{context_};
  std::array<std::shared_ptr<Graph>, 2> graphs_;
  std::array<std::vector<MemoryRange>, 2> memory_;
  std::vector<Made> calls_;
  std::vector<Op> ops_;
  Truth truth_;
  std::string wrong_;
};

TEST(Onlookers, OfOneThreadNothingMeetsAndNothingWaitsInVain) {
  int relaxed = 0, in_order = 0, needless = 0, unseen = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    World world(seed, 1);
    ASSERT_EQ(world.run(400), "") << "seed " << seed;
    relaxed += world.relaxed;
    in_order += world.in_order;
    needless += world.needless;
    unseen += world.unseen;
  }
  EXPECT_GT(relaxed, 500);
  EXPECT_GT(in_order, 500);
  EXPECT_GT(unseen, 500);
  // What comes after a launch of the same graph is not known to.
  EXPECT_LT(needless, (relaxed + in_order) / 20);
}

TEST(Onlookers, OfSeveralThreadsNothingMeets) {
  int relaxed = 0, waits = 0, unseen = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    World world(seed, 2 + seed % 4);
    ASSERT_EQ(world.run(1500), "") << "seed " << seed;
    relaxed += world.relaxed;
    waits += world.waits;
    unseen += world.unseen;
  }
  EXPECT_GT(relaxed, 500);
  EXPECT_GT(waits, 100);
  EXPECT_GT(unseen, 500);
}

TEST(Onlookers, OfGraphsThatStayOnTheirStreamsNothingMeets) {
  int by_gate = 0, in_order = 0, waits = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    World world(seed, 1 + seed % 4, /*stay=*/true);
    ASSERT_EQ(world.run(1000), "") << "seed " << seed;
    by_gate += world.by_gate;
    in_order += world.in_order;
    waits += world.waits;
  }
  EXPECT_GT(by_gate, 500);
  EXPECT_GT(in_order, 500);
  EXPECT_GT(waits, 100);
}

}  // namespace
}  // namespace nimble
