#include "shim/rewrite/graph/graph_pair.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace nimble::shim {
namespace {

// A driver of one context that is done with everything at once: a launch takes as long as is said of its graph.
class Driver {
 public:
  Driver() {
    instance_ = this;
    api.cuCtxGetCurrent_ = [](CUcontext* out) { return *out = kContext, CUDA_SUCCESS; };
    api.cuEventCreate_ = [](CUevent* out, unsigned) {
      instance_->at.push_back(0);
      return *out = reinterpret_cast<CUevent>(instance_->at.size()), CUDA_SUCCESS;
    };
    api.cuEventDestroy_ = [](CUevent) { return CUDA_SUCCESS; };
    api.cuEventRecord_ = [](CUevent event, CUstream) { return instance_->when(event) = instance_->now, CUDA_SUCCESS; };
    api.cuEventQuery_ = [](CUevent) { return CUDA_SUCCESS; };
    api.cuEventElapsedTime_ = [](float* ms, CUevent begin, CUevent end) {
      *ms = static_cast<float>((instance_->when(end) - instance_->when(begin)) / 1e3);
      return CUDA_SUCCESS;
    };
    api.cuStreamWaitEvent_ = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
    graphs.cuGraphLaunch_ = [](CUgraphExec exec, CUstream) {
      instance_->now += exec == kOwn ? instance_->own_us : instance_->rewritten_us;
      return CUDA_SUCCESS;
    };
  }
  ~Driver() { instance_ = nullptr; }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  static inline const CUcontext kContext = reinterpret_cast<CUcontext>(0x10);
  static inline const CUgraphExec kOwn =
      reinterpret_cast<CUgraphExec>(0x20);  // the rewritten one was never built: null

  DriverApi api;
  GraphApi graphs;
  double own_us = 1000, rewritten_us = 1000;

 private:
  double& when(CUevent event) { return at[reinterpret_cast<std::uintptr_t>(event) - 1]; }

  static inline Driver* instance_ = nullptr;
  double now = 0;
  std::vector<double> at;  // of each event that was made
};

struct Trial {
  explicit Trial(Driver& driver) : pair(driver.graphs, driver.api, Tune::start, 1, Driver::kContext) {
    pair.describe(Driver::kContext, {2, 2, {}, {}, {}, {}});
  }

  // Launches it so often, or until it is decided.
  void launch(std::uint32_t times) {
    for (std::uint32_t i = 0; i < times && news.empty(); ++i)
      news = pair.launch(Driver::kOwn, {nullptr, 4}, true, false).news;
  }
  void launch() { launch(1000); }
  GraphStatus::State state() const { return pair.status(Driver::kOwn).state; }

  GraphPair pair;
  std::string news;
};

constexpr std::uint32_t kTurnOfBoth = 2 * (Tuner::kWarmUp + Tuner::kTimed);

TEST(GraphPair, WhatTheRewrittenGraphHasToGain) {
  using State = GraphStatus::State;
  // Microseconds of the rewritten one, of 1000.
  for (const auto& [us, in_one_state, in_both] : {std::tuple{985., State::rewritten, State::rewritten},
                                                  {995., State::own, State::rewritten},
                                                  {999., State::own, State::own},
                                                  {1010., State::own, State::own}}) {
    Driver driver;
    driver.rewritten_us = us;
    Trial one(driver);
    one.pair.driver_settled();  // all turns come after it
    one.launch();
    EXPECT_EQ(one.state(), in_one_state) << us;
    Trial both(driver);
    both.launch(kTurnOfBoth);
    both.pair.driver_settled();
    EXPECT_EQ(both.state(), State::trying);
    both.launch();
    EXPECT_EQ(both.state(), in_both) << us;
  }
}

TEST(GraphPair, WhatItGainsInOneStateOfTheDriverAloneIsNothing) {
  Driver driver;
  driver.rewritten_us = 950;
  Trial trial(driver);
  trial.launch(kTurnOfBoth);
  driver.own_us = 900, driver.rewritten_us = 899;
  trial.pair.driver_settled();
  trial.launch();
  EXPECT_EQ(trial.state(), GraphStatus::State::own);
  EXPECT_EQ(trial.news,
            "graph 1: the program's own is launched: 899.0 us a launch; the program's own 900.0 us; in turns 950.0, "
            "899.0, 899.0; its own 1000.0, 900.0, 900.0");
}

}  // namespace
}  // namespace nimble::shim
