#include "shim/rewrite/live/live_graphs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace nimble::shim {
namespace {

const auto kExec = reinterpret_cast<CUgraphExec>(0x10);
const auto kContext = reinterpret_cast<CUcontext>(0x20);
constexpr std::uint64_t kMemory = 0x100000;

Call context_ends() {
  Call call;
  call.kind = CallKind::context_end;
  call.context = kContext;
  return call;
}

Call shown() {
  Call call;
  call.kind = CallKind::hidden;
  call.shown = true;
  return call;
}

class LiveGraphsTest : public testing::Test {
 protected:
  LiveGraphsTest() {
    driver_.cuCtxGetCurrent_ = [](CUcontext* out) { return *out = kContext, CUDA_SUCCESS; };
  }
  LiveGraphs::Shared graph(std::uint64_t number = 1) {
    auto made = std::make_shared<GraphPair>(api_, driver_, Tune::start, number, kContext);
    made->describe(kContext, {2, 2, {}, {{kMemory, 16}}, {}, {}});
    return made;
  }
  static void put(LiveGraphs::Analysis& analysis, const LiveGraphs::Shared& graph) {
    analysis.put(kExec, graph, [](GraphPair&) {});
  }

  GraphApi api_;
  DriverApi driver_;
  std::vector<std::string> said_;
  RewriteLog log_{[this](ReplayLog, const std::string& text) { said_.push_back(text); }};
  LiveGraphs graphs_{log_};
};

TEST_F(LiveGraphsTest, OneIsAliveFromTheEndOfItsAnalysisOn) {
  const LiveGraphs::Shared one = graph();
  {
    LiveGraphs::Analysis analysis(graphs_);
    EXPECT_TRUE(graphs_.any_analysis());
    EXPECT_EQ(graphs_.find(kExec), nullptr);
    put(analysis, one);
    EXPECT_EQ(graphs_.find(kExec), one);
  }
  EXPECT_FALSE(graphs_.any_analysis());
  bool told = false;
  EXPECT_TRUE(graphs_.remove(kExec, [&](GraphPair& gone) { told = &gone == one.get(); }));
  EXPECT_TRUE(told);
  EXPECT_EQ(graphs_.find(kExec), nullptr);
  EXPECT_FALSE(graphs_.remove(kExec, [](GraphPair&) { FAIL(); }));
}

TEST_F(LiveGraphsTest, ItHearsOfWhatItMissed) {
  graphs_.tell(shown());  // before
  const LiveGraphs::Shared one = graph(), other = graph(2);
  LiveGraphs::Analysis first(graphs_);
  graphs_.tell(shown());
  LiveGraphs::Analysis second(graphs_);
  put(second, other);
  EXPECT_FALSE(other->is_kept()) << "that was before its analysis";
  put(first, one);
  EXPECT_TRUE(one->is_kept());
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_.front(), "graph 1: the program's own is launched from now on: others may reach its memory now");
}

TEST_F(LiveGraphsTest, WhatWasMissedIsForgottenWithTheLastAnalysis) {
  {
    LiveGraphs::Analysis analysis(graphs_);
    graphs_.tell(shown());
  }
  LiveGraphs::Analysis analysis(graphs_);
  const LiveGraphs::Shared one = graph();
  put(analysis, one);
  EXPECT_FALSE(one->is_kept());
}

TEST_F(LiveGraphsTest, OneOfTheSameHandleIsReplaced) {
  const LiveGraphs::Shared one = graph(), other = graph(2);
  LiveGraphs::Analysis analysis(graphs_);
  put(analysis, one);
  GraphPair* replaced = nullptr;
  analysis.put(kExec, other, [&](GraphPair& before) { replaced = &before; });
  EXPECT_EQ(replaced, one.get());
  EXPECT_EQ(graphs_.find(kExec), other);
}

TEST_F(LiveGraphsTest, TheyHearOfMemoryThatComesTogetherAndOfContextsThatEnd) {
  LiveGraphs::Analysis analysis(graphs_);
  const LiveGraphs::Shared one = graph();
  put(analysis, one);
  Call call;
  call.kind = CallKind::free;
  call.memory.address = kMemory;
  graphs_.tell(call);
  EXPECT_FALSE(one->is_kept());
  call.kind = CallKind::alloc;
  call.memory.kind = MemoryKind::managed;  // where it lies others may reach it
  call.memory.size = 16;
  graphs_.tell(call);
  EXPECT_TRUE(one->is_kept());
  EXPECT_FALSE(one->work()->context_gone());
  graphs_.tell(context_ends());
  EXPECT_TRUE(one->work()->context_gone());
  int count = 0;
  graphs_.each([&](GraphPair& each) { count += &each == one.get(); });
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace nimble::shim
