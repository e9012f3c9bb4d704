// The simulated clock, and the model that it runs by.
#include "fixture.h"
#include "nimble/internal/device_model.h"

namespace {

using Clock = Simcuda;

TEST(DeviceModel, KernelsFillMultiprocessors) {
  const nimble::DeviceModel device;
  EXPECT_EQ(nimble::blocks_at_once(device, 256), 8);
  EXPECT_EQ(nimble::blocks_at_once(device, 1), 32);
  EXPECT_EQ(nimble::multiprocessors_of(device, 1, 1), 1);
  EXPECT_EQ(nimble::multiprocessors_of(device, 8 * 66, 256), 66);
  EXPECT_EQ(nimble::multiprocessors_of(device, 1 << 20, 256), 132);
  EXPECT_DOUBLE_EQ(nimble::kernel_us(device, 1, 32), device.kernel_base_us);
  EXPECT_DOUBLE_EQ(nimble::kernel_us(device, 8 * 132 + 1, 256), device.kernel_base_us + device.kernel_wave_us);
  EXPECT_GT(nimble::copy_us(device, 1 << 20, nimble::CopyDirection::kHostToDevice),
            nimble::copy_us(device, 1 << 20, nimble::CopyDirection::kDeviceToDevice));
}

// Small kernels run side by side where nothing orders them; those that fill the device cannot.
TEST_F(Clock, ConcurrencyIsWhatFits) {
  const CUdeviceptr memory = zeros(64);
  const auto span = [&](unsigned blocks, bool chain) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    CUdeviceptr out = memory;
    int value = 0, count = 0;
    void* arguments[] = {&out, &value, &count};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function("fill");
    params.gridDimX = blocks;
    params.blockDimX = 1024;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    CUgraphNode last = nullptr;
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(cuGraphAddKernelNode(&last, graph, &last, chain && i != 0 ? 1 : 0, &params), CUDA_SUCCESS);
    }
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    simcuda_reset_counters();
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
    const double end = simcuda_gpu_end_us();
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    return end;
  };
  EXPECT_LT(span(4, false), span(4, true) / 3);
  EXPECT_GT(span(132 * 2, false), span(132 * 2, true) * 0.7);
}

TEST_F(Clock, AGraphCostsTheHostOneSubmission) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  simcuda_reset_counters();
  for (int i = 0; i < 100; ++i) OK(launch("fill", s, 1, 1, memory, i, 1));
  EXPECT_EQ(simcuda_submissions(), 100u);
  const double by_hand = simcuda_host_time_us();
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 100; ++i) OK(launch("fill", s, 1, 1, memory, i, 1));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamEndCapture(s, &graph));
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuCtxSynchronize());
  simcuda_reset_counters();
  OK(cuGraphLaunch(exec, s));
  EXPECT_EQ(simcuda_submissions(), 1u);
  EXPECT_EQ(simcuda_graph_launches(), 1u);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 1u);
  EXPECT_LT(simcuda_host_time_us(), by_hand / 20);
  OK(cuCtxSynchronize());
  EXPECT_GE(simcuda_gpu_busy_us(), 100 * nimble::DeviceModel().kernel_base_us * 0.99);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(Clock, EventsTellSimulatedTime) {
  const CUdeviceptr memory = zeros(64 << 20);
  const CUstream s = stream();
  const CUevent begin = event(), end = event();
  OK(cuEventRecord(begin, s));
  OK(cuMemsetD8Async(memory, 0, 64 << 20, s));
  OK(cuEventRecord(end, s));
  OK(cuEventSynchronize(end));
  float milliseconds = 0;
  OK(cuEventElapsedTime(&milliseconds, begin, end));
  EXPECT_NEAR(milliseconds, nimble::set_us(nimble::DeviceModel(), 64 << 20) * 1e-3, 0.01);
}

TEST_F(Clock, TheHostWaitsForTheDevice) {
  const CUdeviceptr memory = zeros(64 << 20);
  simcuda_reset_counters();
  OK(cuMemsetD8Async(memory, 0, 64 << 20, nullptr));
  EXPECT_LT(simcuda_host_time_us(), 10);
  OK(cuCtxSynchronize());
  EXPECT_GE(simcuda_host_time_us(), simcuda_gpu_end_us());
}

}  // namespace
