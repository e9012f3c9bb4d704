// Launches that take no lock.
#include "replayer/onlookers/onlookers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/unit/replayer/onlookers/onlookers_support.h"

namespace nimble {
namespace {

using namespace order;  // NOLINT(google-build-using-namespace)

class GatesTest : public OnlookersTest {
 protected:
  GatesTest() { use(graph_ = std::make_shared<Graph>(Onlookers::Work::Gated::yes)); }
  void use(const std::shared_ptr<Graph>& graph) {
    const MemoryRange memory[] = {range(1, false), range(2, true)};
    onlookers_.uses(graph, memory, false, false);
  }
  enum class Way { by_gate, by_lock, not_at_all };
  Way begin(const std::shared_ptr<Graph>& graph, const Stream& on) {
    if (Onlookers::enter_gate(*graph, on.ref)) {
      Onlookers::leave_gate(*graph);
      return Way::by_gate;
    }
    Onlookers::Works met;
    const auto launch = onlookers_.begins(graph, on.ref, {}, met);
    if (!launch) return Way::not_at_all;
    onlookers_.begun(graph, *launch, true, true);
    return Way::by_lock;
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
  EXPECT_TRUE(closes([&] { EXPECT_TRUE(onlookers_.try_close_gate(*graph_)); }));
  EXPECT_TRUE(closes([&] {
    Call peer;
    peer.kind = CallKind::hidden;
    peer.traced = peer.shown = true;
    EXPECT_TRUE(make(peer));
  }));
  EXPECT_EQ(begin(), Way::not_at_all);
}

TEST_F(GatesTest, WhoTriesToCloseItDoesNotWaitForALaunchThatIsInIt) {
  begin();
  ASSERT_TRUE(Onlookers::enter_gate(*graph_, kA.ref));
  EXPECT_FALSE(onlookers_.try_close_gate(*graph_));
  Onlookers::leave_gate(*graph_);
  EXPECT_FALSE(Onlookers::enter_gate(*graph_, kA.ref));
  EXPECT_TRUE(onlookers_.try_close_gate(*graph_));
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
      std::optional<Onlookers::Launch> launch;
      const bool by_gate = Onlookers::enter_gate(*work, kA.ref);
      if (!by_gate && !(launch = onlookers_.begins(work, kA.ref, {}, met))) continue;
      state.launched = true;
      state.wrong += state.copied;
      by_gate ? Onlookers::leave_gate(*work) : onlookers_.begun(work, *launch, true, true);
      state.by_gate += by_gate;
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

}  // namespace
}  // namespace nimble
