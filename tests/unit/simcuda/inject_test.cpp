// Errors on demand.
#include "fixture.h"

namespace {

using Injection = Simcuda;

TEST_F(Injection, TheNthCallFails) {
  const CUdeviceptr number = zeros(8);
  const CUstream s = stream();
  ASSERT_EQ(simcuda_inject("cuLaunchKernel", 2, CUDA_ERROR_OUT_OF_MEMORY), 0);
  OK(append(s, number, 1));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, append(s, number, 2));
  OK(append(s, number, 3));
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<unsigned long long>(number), 13u);  // the failed one did nothing
}

TEST_F(Injection, FaultsStick) {
  const CUfunction count_up = function("count_up");
  ASSERT_EQ(simcuda_inject("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED), 0);
  FAILS(CUDA_ERROR_LAUNCH_FAILED, cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  OK(cuDevicePrimaryCtxReset(0));
  OK(cuCtxSynchronize());
}

TEST_F(Injection, OnlySymbolsThatExist) {
  EXPECT_EQ(simcuda_inject("cuNoSuchThing", 1, 2), -1);
  EXPECT_EQ(simcuda_inject("cuMemAlloc_v2", 0, 2), -1);
}

}  // namespace
