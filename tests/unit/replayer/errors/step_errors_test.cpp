#include "replayer/errors/step_errors.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

const auto kContext = reinterpret_cast<CUcontext>(0x8);  // which FakeDriver has current

Call call(CallKind kind) {
  Call c;
  c.kind = kind;
  c.traced = c.has_stream = true;
  c.stream = {FakeDriver::kStream, 0x1000};
  return c;
}

class StepErrorsAlone : public testing::Test {
 protected:
  StepErrorsAlone() { streams_.use_context(kContext); }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  const Schedule schedule_;
  Captures captures_;
  StandAside standing_;
  StepStreams streams_{schedule_, driver_, api_};
  StepErrors errors_{api_, streams_, captures_, standing_};
};

TEST_F(StepErrorsAlone, ARefusedOpIsReportedOnceByACallThatMayReport) {
  errors_.refused(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(standing_.why(), "the driver refused an op (CUDA_ERROR_INVALID_VALUE)");
  EXPECT_EQ(errors_.tell(call(CallKind::alloc), CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_TRUE(errors_.any());
  EXPECT_EQ(errors_.tell(call(CallKind::stream_synchronize), CUDA_SUCCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(errors_.any());
  EXPECT_EQ(errors_.failed(), CUDA_SUCCESS);
}

TEST_F(StepErrorsAlone, ACapturedOpReportsNothing) {
  EXPECT_TRUE(errors_.may_tell(call(CallKind::launch)));
  captures_.begin({FakeDriver::kStream, 0x1000});
  driver_.capturing = {FakeDriver::kStream};
  EXPECT_FALSE(errors_.may_tell(call(CallKind::launch)));
}

TEST_F(StepErrorsAlone, WhatAContextDoesNotSurviveStaysUntilItEnds) {
  errors_.refused(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(errors_.failed(), CUDA_ERROR_LAUNCH_FAILED);
  Call end = call(CallKind::context_end);
  end.context = reinterpret_cast<CUcontext>(0x18);
  errors_.context_gone(end);
  EXPECT_EQ(errors_.failed(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(errors_.tell(end, CUDA_SUCCESS), CUDA_SUCCESS);  // another context's
  end.context = kContext;
  errors_.context_gone(end);
  EXPECT_EQ(errors_.failed(), CUDA_SUCCESS);
  EXPECT_EQ(errors_.tell(end, CUDA_SUCCESS), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_FALSE(errors_.any());
}

TEST_F(StepErrorsAlone, OthersContextsFailWithoutOurs) {
  streams_.use_context(reinterpret_cast<CUcontext>(0x18));
  errors_.context_failed(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(errors_.failed(), CUDA_SUCCESS);
  EXPECT_TRUE(standing_.aside());
}

}  // namespace
}  // namespace nimble
