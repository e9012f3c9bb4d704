#include "replayer/tune/step_tuning.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/schedule_support.h"

namespace nimble {
namespace {

class StepTuningTest : public testing::Test {
 protected:
  StepTuningTest() {
    add_op(schedule_, CallKind::launch, Submit::graph, 0);
    streams_.use_context(reinterpret_cast<CUcontext>(0x8));
    streams_.set(0, {FakeDriver::kStream, 0x1000});
    tuning_.use_context(streams_.context());
  }
  // Steps until the tuner has decided something, so many at most.
  void run(int steps) {
    for (int i = 0; i < steps && tuning_.tuners()[0].decisions() == 0; ++i) {
      // The fake driver's answer is the time between any two events.
      driver_.elapsed_ms = tuning_.begin_step(0) == Way::own ? 1 : 2;
      tuning_.end_step(0, false);
      tuning_.read();
    }
  }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  Schedule schedule_;
  StepStreams streams_{schedule_, driver_, api_};
  StandAside standing_;
  StepTuning tuning_{api_, streams_, standing_, 1};
};

TEST_F(StepTuningTest, UntilItStartsStepsGoByTheSchedule) {
  EXPECT_EQ(tuning_.begin_step(0), Way::schedule);
  EXPECT_FALSE(tuning_.tries(0, Way::own));
  EXPECT_TRUE(driver_.log.empty());  // nothing is timed
}

TEST_F(StepTuningTest, ReplayStandsAsideIfItGainsNothing) {
  tuning_.start(Tune::start, schedule_, [](std::uint32_t) { return false; });
  run(1000);
  EXPECT_EQ(tuning_.tuners()[0].settled(), Way::own);
  EXPECT_TRUE(standing_.aside());
}

TEST_F(StepTuningTest, KindsThatOthersGoOnFromAreNotTimed) {
  tuning_.start(Tune::start, schedule_, [](std::uint32_t) { return true; });
  run(1000);
  EXPECT_EQ(tuning_.tuners()[0].decisions(), 0u);
  EXPECT_FALSE(standing_.aside());
}

TEST_F(StepTuningTest, AStepIsTimedToItsLastOpThatTheDriverHasHad) {
  tuning_.start(Tune::start, schedule_, [](std::uint32_t) { return false; });
  driver_.log.clear();
  for (int i = 0; i < 10 && driver_.log.empty(); ++i) {  // the first steps of a turn are not timed
    tuning_.begin_step(0);
    tuning_.end_step(0, true);
    if (driver_.log.empty()) tuning_.landed();
  }
  ASSERT_EQ(driver_.log, std::vector<std::string>{"record"});
  tuning_.landed();
  tuning_.landed();
  EXPECT_EQ(driver_.log, (std::vector<std::string>{"record", "record"}));
}

}  // namespace
}  // namespace nimble
