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

// The same op, by whichever call it comes: that is how a program can be compared with one whose ops go as graphs.
TEST_F(Injection, AnOpIsRefusedOnItsOwnAndInAGraph) {
  const CUdeviceptr number = zeros(8);
  const CUstream s = stream();
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  simcuda_fail_op(SIMCUDA_KERNEL, 2, CUDA_ERROR_OUT_OF_MEMORY, 0);
  OK(append(s, number, 1));
  OK(append(s, number, 2));  // nothing is submitted yet
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamEndCapture(s, &graph));
  OK(cuGraphInstantiate(&exec, graph, 0));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, s));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, s));
  EXPECT_EQ(simcuda_failures(), 0u);
  OK(append(s, number, 1));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, append(s, number, 2));
  EXPECT_EQ(simcuda_failures(), 1u);
  OK(append(s, number, 2));
  OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<unsigned long long>(number), 1212u);  // what failed did nothing
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(Injection, CopiesAndSetsAreToldByTheirBytesAndRecordsAndWaitsByTheirEvent) {
  const CUdeviceptr memory = zeros(256);
  const CUstream s = stream();
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  simcuda_fail_op(SIMCUDA_COPY, 24, CUDA_ERROR_INVALID_VALUE, 0);
  OK(cuMemcpyDtoDAsync(memory, memory + 64, 16, s));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(memory, memory + 64, 24, s));
  simcuda_fail_op(SIMCUDA_SET, 24, CUDA_ERROR_INVALID_VALUE, 0);
  OK(cuMemsetD8Async(memory, 1, 6, s));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(memory, 1, 6, s));
  simcuda_fail_op(SIMCUDA_EVENT_RECORD, reinterpret_cast<std::uint64_t>(event), CUDA_ERROR_INVALID_VALUE, 0);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuEventRecord(event, s));
  OK(cuEventRecord(event, s));
  simcuda_fail_op(SIMCUDA_EVENT_WAIT, reinterpret_cast<std::uint64_t>(event), CUDA_ERROR_INVALID_VALUE, 0);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(s, event, 0));
  OK(cuStreamWaitEvent(s, event, 0));
  EXPECT_EQ(simcuda_failures(), 4u);
  OK(cuEventDestroy(event));
}

TEST_F(Injection, AnOpFaultsWhenItRuns) {
  const CUdeviceptr number = zeros(8);
  simcuda_fail_op(SIMCUDA_KERNEL, 2, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
  OK(append(nullptr, number, 2));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_EQ(simcuda_failures(), 1u);
  OK(cuDevicePrimaryCtxReset(0));
}

}  // namespace
