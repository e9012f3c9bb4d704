// Stream capture: what becomes of the calls, and what must not be called.
#include <dlfcn.h>

#include <set>
#include <thread>

#include "fixture.h"

namespace {

using Digits = unsigned long long;

class Capture : public Simcuda {
 protected:
  void SetUp() override {
    Simcuda::SetUp();
    number = zeros(8);
    origin = stream();
  }

  // Ends the capture, and runs what it made.
  Digits end_and_run() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuStreamEndCapture(origin, &graph), CUDA_SUCCESS);
    if (graph == nullptr) return 0;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(number, 0, 8), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    return peek<Digits>(number);
  }

  CUstreamCaptureStatus status() {
    CUstreamCaptureStatus now{};
    EXPECT_EQ(cuStreamIsCapturing(origin, &now), CUDA_SUCCESS);
    return now;
  }

  void expect_invalidated() {
    EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(append(origin, number, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(origin, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_NONE);
  }

  CUdeviceptr number = 0;
  CUstream origin = nullptr;
};

TEST_F(Capture, CapturedWorkDoesNotRun) {
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(append(origin, number, 1));
  OK(append(origin, number, 2));
  EXPECT_EQ(simcuda_pending(), 0u);
  EXPECT_EQ(peek<Digits>(number), 0u);
  EXPECT_EQ(end_and_run(), 12u);
}

TEST_F(Capture, ForkAndJoin) {
  std::set<Digits> results;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simcuda_set_seed(seed);
    const CUstream side = stream();
    const CUevent fork = event(), join = event();
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(append(origin, number, 1));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(side, fork, 0));
    OK(append(side, number, 2));
    OK(append(origin, number, 3));
    OK(cuEventRecord(join, side));
    OK(cuStreamWaitEvent(origin, join, 0));
    OK(append(origin, number, 4));
    results.insert(end_and_run());
  }
  EXPECT_EQ(results, std::set<Digits>({1234, 1324}));
}

TEST_F(Capture, TheInfoTellsWhereItStands) {
  CUstreamCaptureStatus now{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* data = nullptr;
  std::size_t count = 0;
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(append(origin, number, 1));
  OK(cuStreamGetCaptureInfo(origin, &now, &id, &graph, &dependencies, &data, &count));
  EXPECT_EQ(now, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0u);
  ASSERT_EQ(count, 1u);
  CUgraphNodeType type{};
  OK(cuGraphNodeGetType(dependencies[0], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  // A node added by hand, and put into the stream's order.
  CUgraphNode empty = nullptr;
  OK(cuGraphAddEmptyNode(&empty, graph, dependencies, count));
  OK(cuStreamUpdateCaptureDependencies(origin, &empty, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(append(origin, number, 2));
  EXPECT_EQ(end_and_run(), 12u);
}

TEST_F(Capture, AKernelThatMayBeginEarlyHasAnEdgeThatSaysSo) {
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = origin;
  config.attrs = &early;
  for (int i = 1; i < 4; ++i) {
    void* arguments[] = {&number, &i};
    config.numAttrs = i == 2;
    OK(cuLaunchKernelEx(&config, function("append"), arguments, nullptr));
  }
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(origin, &graph));
  CUgraphNode from[2] = {}, to[2] = {};
  CUgraphEdgeData data[2] = {};
  std::size_t count = 2;
  using PlainEdges = CUresult (*)(CUgraph, CUgraphNode*, CUgraphNode*, size_t*);
  const auto plain = reinterpret_cast<PlainEdges>(dlsym(RTLD_DEFAULT, "cuGraphGetEdges"));
  EXPECT_EQ(plain(graph, from, to, &count), CUDA_ERROR_LOSSY_QUERY);
  OK(cuGraphGetEdges(graph, from, to, data, &count));
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  EXPECT_EQ(data[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
  EXPECT_EQ(data[1].type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
  EXPECT_EQ(cuGraphRemoveDependencies(graph, from, to, nullptr, 1), CUDA_ERROR_INVALID_VALUE) << "another edge";
  OK(cuGraphRemoveDependencies(graph, from, to, data, 2));
  OK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
  OK(cuGraphDestroy(graph));
}

TEST_F(Capture, IntoAGraphThatIsThere) {
  CUgraph graph = nullptr, ended = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNode first = nullptr;
  OK(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  OK(cuStreamBeginCaptureToGraph(origin, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(append(origin, number, 1));
  OK(cuStreamEndCapture(origin, &ended));
  EXPECT_EQ(ended, graph);
  std::size_t edges = 0;
  OK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 1u);
  OK(cuGraphDestroy(graph));
}

TEST_F(Capture, AllocationsBecomeNodes) {
  CUdeviceptr memory = 0;
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&memory, 64, origin));
  OK(cuMemsetD32Async(memory, 7, 16, origin));
  OK(cuMemcpyDtoDAsync(number, memory, 4, origin));
  OK(cuMemFreeAsync(memory, origin));
  EXPECT_EQ(end_and_run(), 7u);
}

TEST_F(Capture, ALaunchOfAGraphBecomesAChild) {
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(append(origin, number, 1));
  CUgraph inner = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamEndCapture(origin, &inner));
  OK(cuGraphInstantiate(&exec, inner, 0));
  std::size_t one = 1;
  CUgraphNode node = nullptr;
  OK(cuGraphGetNodes(inner, &node, &one));
  CUDA_KERNEL_NODE_PARAMS params{};
  OK(cuGraphKernelNodeGetParams(node, &params));
  int digit = 5;
  void* arguments[] = {&number, &digit};
  params.kernelParams = arguments;
  OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuGraphLaunch(exec, origin));
  OK(append(origin, number, 2));
  EXPECT_EQ(end_and_run(), 52u);  // as the executable is now
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(inner));
}

TEST_F(Capture, EventsOfTheWorldAreOutOfReach) {
  const CUevent outside = event();
  OK(cuEventRecord(outside, stream()));
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(origin, outside, 0));
  expect_invalidated();
}

TEST_F(Capture, CapturedEventsCannotBeWaitedForByTheHost) {
  const CUevent e = event();
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(e, origin));
  FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
  expect_invalidated();
}

TEST_F(Capture, ExternalEventsAreNodes) {
  const CUevent e = event();
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(append(origin, number, 1));
  OK(cuEventRecordWithFlags(e, origin, CU_EVENT_RECORD_EXTERNAL));
  EXPECT_EQ(end_and_run(), 1u);
  OK(cuEventSynchronize(e));
}

TEST_F(Capture, WaitingInvalidates) {
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(origin));
  expect_invalidated();
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
  expect_invalidated();
}

TEST_F(Capture, ModesSayWhatIsForbiddenAndToWhom) {
  CUdeviceptr memory = 0;
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&memory, 16));
  expect_invalidated();

  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAlloc(&memory, 16));
  EXPECT_EQ(end_and_run(), 0u);

  const auto elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread other([&] {
      CUdeviceptr more = 0;
      cuCtxSetCurrent(context);
      result = cuMemAlloc(&more, 16);
    });
    other.join();
    return result;
  };
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(elsewhere(), CUDA_SUCCESS);
  EXPECT_EQ(end_and_run(), 0u);
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated();

  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAlloc(&memory, 16));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(end_and_run(), 0u);
}

TEST_F(Capture, TheLegacyStreamGetsInTheWay) {
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  origin = stream(CU_STREAM_DEFAULT);
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, append(nullptr, number, 1));
  expect_invalidated();
  origin = stream(CU_STREAM_NON_BLOCKING);
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(append(nullptr, number, 1));
  EXPECT_EQ(end_and_run(), 0u);
}

TEST_F(Capture, EndsWhereAndAsItBegan) {
  CUgraph graph = nullptr;
  FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(origin, &graph));
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUstream side = stream();
  const CUevent e = event();
  OK(cuEventRecord(e, origin));
  OK(cuStreamWaitEvent(side, e, 0));
  OK(append(side, number, 1));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &graph));
  std::thread other([&] {
    CUgraph theirs = nullptr;
    cuCtxSetCurrent(context);
    EXPECT_EQ(cuStreamEndCapture(origin, &theirs), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  });
  other.join();
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(origin, &graph));
  EXPECT_EQ(graph, nullptr);
}

TEST_F(Capture, TwoCapturesDoNotMix) {
  const CUstream second = stream();
  const CUevent e = event();
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(e, origin));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(second, e, 0));
  expect_invalidated();
}

}  // namespace
