#include "replayer/driver/result_name.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

TEST(ResultName, IsThatOfTheHeader) {
  EXPECT_EQ(result_name(CUDA_SUCCESS), "CUDA_SUCCESS");
  EXPECT_EQ(result_name(CUDA_ERROR_INVALID_VALUE), "CUDA_ERROR_INVALID_VALUE");
  EXPECT_EQ(result_name(CUDA_ERROR_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(result_name(CUDA_ERROR_UNKNOWN), "CUDA_ERROR_UNKNOWN");
}

TEST(ResultName, OfAResultThatTheHeaderDoesNotHaveIsItsNumber) {
  EXPECT_EQ(result_name(static_cast<CUresult>(4242)), "error 4242");
}

}  // namespace
}  // namespace nimble
