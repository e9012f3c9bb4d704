// Whose context is current before, while and after ours is.
#include "replayer/driver/current_context.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

// Driver calls that are refused once.
struct Contexts {
  static inline CUcontext current;
  static inline int pushes, pops;
};

TEST(CurrentContext, ATransientRefusalLeavesNoOtherContextCurrent) {
  DriverApi api;
  api.cuCtxGetCurrent_ = [](CUcontext* out) { return *out = Contexts::current, CUDA_SUCCESS; };
  api.cuCtxPushCurrent_ = [](CUcontext context) {
    if (++Contexts::pushes == 1) return CUDA_ERROR_OUT_OF_MEMORY;
    return Contexts::current = context, CUDA_SUCCESS;
  };
  api.cuCtxPopCurrent_ = [](CUcontext*) {
    if (++Contexts::pops == 1) return CUDA_ERROR_OUT_OF_MEMORY;
    return Contexts::current = nullptr, CUDA_SUCCESS;
  };
  const auto ours = reinterpret_cast<CUcontext>(0x8);
  {
    const CurrentContext current(api, ours);
    EXPECT_EQ(Contexts::current, ours);
  }
  EXPECT_EQ(Contexts::current, nullptr);
}

}  // namespace
}  // namespace nimble
