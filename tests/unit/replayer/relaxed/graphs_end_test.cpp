#include "replayer/relaxed/graphs_end.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

class GraphsEndTest : public testing::Test {
 protected:
  GraphsEndTest() {
    streams_.use_context(reinterpret_cast<CUcontext>(0x8));
    streams_.set(0, {FakeDriver::kStream, 0x1000});
  }
  std::size_t records() const { return std::count(driver_.log.begin(), driver_.log.end(), "record"); }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  const Schedule schedule_;
  Captures captures_;
  StepStreams streams_{schedule_, driver_, api_};
  GraphsEnd end_{api_, streams_, captures_};
};

TEST_F(GraphsEndTest, BeforeAnyGraphThereIsNothingToAsk) {
  driver_.busy = true;
  EXPECT_TRUE(end_.are_through());
  end_.mark();
  EXPECT_EQ(records(), 0u);
}

TEST_F(GraphsEndTest, OneEventIsRecordedBehindTheLast) {
  end_.launched();
  end_.launched();
  driver_.busy = true;
  EXPECT_FALSE(end_.are_through());
  EXPECT_FALSE(end_.are_through());
  EXPECT_EQ(records(), 1u);
  driver_.busy = false;
  EXPECT_TRUE(end_.are_through());
  driver_.busy = true;
  EXPECT_TRUE(end_.are_through());  // it is known
  end_.launched();
  EXPECT_FALSE(end_.are_through());
  EXPECT_EQ(records(), 2u);
}

TEST_F(GraphsEndTest, WhileACaptureGoesOnNothingIsRecorded) {
  end_.launched();
  captures_.begin({FakeDriver::kOther, 0x2000});
  EXPECT_FALSE(end_.are_through());
  EXPECT_EQ(records(), 0u);
}

TEST_F(GraphsEndTest, AStreamThatMayHaveEndedIsNotAsked) {
  end_.launched();
  end_.forget_stream();
  EXPECT_FALSE(end_.are_through());
  EXPECT_EQ(records(), 0u);
}

TEST_F(GraphsEndTest, WithTheContextAllAreThrough) {
  end_.launched();
  driver_.busy = true;
  end_.abandon();
  EXPECT_TRUE(end_.are_through());
}

}  // namespace
}  // namespace nimble
