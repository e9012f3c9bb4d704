// Graphs built by hand: structure, execution, changes.
#include <set>
#include <thread>

#include "fixture.h"

namespace {

using Digits = unsigned long long;

class Graphs : public Simcuda {
 protected:
  void SetUp() override {
    Simcuda::SetUp();
    number = zeros(8);
    OK(cuGraphCreate(&graph, 0));
  }

  CUDA_KERNEL_NODE_PARAMS append_params(int* digit) {
    arguments_[0] = &number;
    arguments_[1] = digit;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function("append");
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments_;
    return params;
  }

  CUgraphNode append_node(int digit, std::vector<CUgraphNode> after = {}) {
    const CUDA_KERNEL_NODE_PARAMS params = append_params(&digit);
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddKernelNode(&node, graph, after.data(), after.size(), &params), CUDA_SUCCESS);
    return node;
  }

  CUgraphExec instantiate() {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }

  Digits run(CUgraphExec exec) {
    EXPECT_EQ(cuMemsetD8(number, 0, 8), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return peek<Digits>(number);
  }

  CUdeviceptr number = 0;
  CUgraph graph = nullptr;

 private:
  void* arguments_[2] = {};
};

TEST_F(Graphs, EdgesAreKeptAndNothingElseIs) {
  const CUgraphNode a = append_node(1), b = append_node(2, {a}), c = append_node(3, {a});
  append_node(4, {b, c});
  const CUgraphExec exec = instantiate();
  std::set<Digits> results;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simcuda_set_seed(seed);
    results.insert(run(exec));
  }
  EXPECT_EQ(results, std::set<Digits>({1234, 1324}));
  OK(cuGraphExecDestroy(exec));
}

TEST_F(Graphs, ALaunchIsAnOpOfItsStream) {
  append_node(2);
  append_node(2);
  const CUgraphExec exec = instantiate();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    simcuda_set_seed(seed);
    OK(cuMemsetD8(number, 0, 8));
    OK(cuCtxSynchronize());
    const CUstream s = stream();
    OK(append(s, number, 1));
    OK(cuGraphLaunch(exec, s));
    OK(append(s, number, 3));
    OK(cuStreamSynchronize(s));
    EXPECT_EQ(peek<Digits>(number), 1223u);
  }
}

// Even on two streams that nothing orders.
TEST_F(Graphs, AnExecutableNeverRunsBesideItself) {
  append_node(2, {append_node(1)});
  const CUgraphExec exec = instantiate();
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simcuda_set_seed(seed);
    OK(cuMemsetD8(number, 0, 8));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(exec, stream()));
    OK(cuGraphLaunch(exec, stream()));
    OK(cuCtxSynchronize());
    EXPECT_EQ(peek<Digits>(number), 1212u) << seed;
  }
}

TEST_F(Graphs, ParametersOfAnExecutableChangeForLaterLaunches) {
  const CUgraphNode node = append_node(1);
  const CUgraphExec exec = instantiate();
  const CUstream s = stream();
  OK(cuGraphLaunch(exec, s));
  int digit = 5;
  CUDA_KERNEL_NODE_PARAMS params = append_params(&digit);
  OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
  OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<Digits>(number), 15u);
  CUDA_KERNEL_NODE_PARAMS kept{};
  OK(cuGraphKernelNodeGetParams(node, &kept));
  EXPECT_EQ(*static_cast<int*>(kept.kernelParams[1]), 1);  // the graph's own node is as it was
  EXPECT_EQ(kept.func, params.func);
  params.gridDimX = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, node, &params));
}

TEST_F(Graphs, ADifferentKernelMayTakeItsPlace) {
  const CUgraphNode node = append_node(1);
  const CUgraphExec exec = instantiate();
  CUDA_KERNEL_NODE_PARAMS params{};
  CUdeviceptr out = number;
  int value = 77, count = 1;
  void* arguments[] = {&out, &value, &count};
  params.func = function("fill");
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
  EXPECT_EQ(run(exec), 77u);
}

TEST_F(Graphs, NodesOfEveryKind) {
  const CUdeviceptr memory = zeros(256);
  CUgraphNode set = nullptr, copy = nullptr, host = nullptr, empty = nullptr, record = nullptr, wait = nullptr,
              child = nullptr;
  const CUDA_MEMSET_NODE_PARAMS set_params{memory, 0, 6, 4, 8, 1};
  OK(cuGraphAddMemsetNode(&set, graph, nullptr, 0, &set_params, context));
  CUDA_MEMCPY3D copy_params{};
  copy_params.srcMemoryType = copy_params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy_params.srcDevice = memory;
  copy_params.dstDevice = memory + 128;
  copy_params.WidthInBytes = 32;
  copy_params.Height = copy_params.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy, graph, &set, 1, &copy_params, context));
  int called = 0;
  const CUDA_HOST_NODE_PARAMS host_params{[](void* data) { ++*static_cast<int*>(data); }, &called};
  OK(cuGraphAddHostNode(&host, graph, &copy, 1, &host_params));
  OK(cuGraphAddEmptyNode(&empty, graph, &host, 1));
  const CUevent e = event();
  OK(cuGraphAddEventRecordNode(&record, graph, &empty, 1, e));
  OK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, e));
  CUgraph inner = nullptr;
  OK(cuGraphCreate(&inner, 0));
  CUgraphNode inner_host = nullptr;
  OK(cuGraphAddHostNode(&inner_host, inner, nullptr, 0, &host_params));
  OK(cuGraphAddChildGraphNode(&child, graph, &wait, 1, inner));
  OK(cuGraphDestroy(inner));

  const CUgraphExec exec = instantiate();
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuEventSynchronize(e));
  EXPECT_EQ(peek<int>(memory + 128 + 28), 6);
  OK(cuCtxSynchronize());
  EXPECT_EQ(called, 2);

  const CUDA_MEMSET_NODE_PARAMS other{memory, 0, 9, 4, 8, 1};
  OK(cuGraphExecMemsetNodeSetParams(exec, set, &other, context));
  copy_params.dstDevice = memory + 64;
  OK(cuGraphExecMemcpyNodeSetParams(exec, copy, &copy_params, context));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(memory + 64), 9);
  EXPECT_EQ(peek<int>(memory + 128), 6);

  CUDA_MEMCPY3D kept{};
  OK(cuGraphMemcpyNodeGetParams(copy, &kept));
  EXPECT_EQ(kept.dstDevice, memory + 128);
  CUgraphNodeType type{};
  OK(cuGraphNodeGetType(child, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
}

TEST_F(Graphs, ListsOfNodesAndEdges) {
  const CUgraphNode a = append_node(1), b = append_node(2, {a}), c = append_node(3, {a, b});
  std::size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 3u);
  CUgraphNode nodes[5] = {};
  count = 5;
  OK(cuGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes[0], a);
  EXPECT_EQ(nodes[2], c);
  EXPECT_EQ(nodes[3], nullptr);
  count = 5;
  OK(cuGraphGetRootNodes(graph, nodes, &count));
  EXPECT_EQ(count, 1u);
  OK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 3u);
  CUgraphNode from[3], to[3];
  OK(cuGraphGetEdges(graph, from, to, nullptr, &count));
  EXPECT_EQ(from[0], a);
  EXPECT_EQ(to[0], b);
  OK(cuGraphNodeGetDependencies(c, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
  OK(cuGraphNodeGetDependentNodes(a, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);

  OK(cuGraphRemoveDependencies(graph, &b, &c, nullptr, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &b, &c, nullptr, 1));
  OK(cuGraphAddDependencies(graph, &c, &b, nullptr, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &c, &b, nullptr, 1));
  EXPECT_EQ(run(instantiate()), 132u);
  OK(cuGraphDestroyNode(c));
  EXPECT_EQ(run(instantiate()), 12u);
}

TEST_F(Graphs, CyclesAreRefused) {
  const CUgraphNode a = append_node(1), b = append_node(2, {a});
  OK(cuGraphAddDependencies(graph, &b, &a, nullptr, 1));
  CUgraphExec exec = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
}

TEST_F(Graphs, Clones) {
  const CUgraphNode node = append_node(1);
  CUgraph clone = nullptr;
  OK(cuGraphClone(&clone, graph));
  CUgraphNode twin = nullptr;
  OK(cuGraphNodeFindInClone(&twin, node, clone));
  EXPECT_NE(twin, node);
  int digit = 8;
  const CUDA_KERNEL_NODE_PARAMS params = append_params(&digit);
  OK(cuGraphKernelNodeSetParams(twin, &params));
  EXPECT_EQ(run(instantiate()), 1u);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, clone, 0));
  OK(cuGraphDestroy(clone));
  EXPECT_EQ(run(exec), 8u);
}

TEST_F(Graphs, UpdateFromAnotherGraph) {
  append_node(2, {append_node(1)});
  const CUgraphExec exec = instantiate();
  CUgraph old = graph;
  OK(cuGraphCreate(&graph, 0));
  const CUgraphNode first = append_node(3);
  const CUgraphNode second = append_node(4, {first});
  CUgraphExecUpdateResultInfo info{};
  OK(cuGraphExecUpdate(exec, graph, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(run(exec), 34u);
  OK(cuGraphRemoveDependencies(graph, &first, &second, nullptr, 1));
  FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(info.errorNode, second);
  EXPECT_EQ(run(exec), 34u);
  OK(cuGraphDestroy(old));
}

TEST_F(Graphs, QueuedLaunchesOutliveTheirExecutable) {
  append_node(6);
  const CUgraphExec exec = instantiate();
  const CUstream s = stream();
  OK(cuGraphLaunch(exec, s));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<Digits>(number), 6u);
}

TEST_F(Graphs, DisabledNodesDoNothing) {
  const CUgraphNode node = append_node(1);
  append_node(2, {node});
  const CUgraphExec exec = instantiate();
  OK(cuGraphNodeSetEnabled(exec, node, 0));
  EXPECT_EQ(run(exec), 2u);
  OK(cuGraphNodeSetEnabled(exec, node, 1));
  EXPECT_EQ(run(exec), 12u);
}

TEST_F(Graphs, MemoryOfAGraph) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = 64;
  CUgraphNode alloc = nullptr, set = nullptr, release = nullptr;
  OK(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  const CUDA_MEMSET_NODE_PARAMS set_params{params.dptr, 0, 3, 1, 64, 1};
  OK(cuGraphAddMemsetNode(&set, graph, &alloc, 1, &set_params, context));
  CUgraphExec exec = instantiate();
  const CUstream s = stream();
  OK(cuGraphLaunch(exec, s));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));  // it was not freed
  OK(cuMemFreeAsync(params.dptr, s));
  OK(cuGraphLaunch(exec, s));
  OK(cuMemFreeAsync(params.dptr, s));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphAddMemFreeNode(&release, graph, &set, 1, params.dptr));
  exec = instantiate();
  for (int i = 0; i < 3; ++i) OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  OK(cuGraphExecDestroy(exec));
}

// As measured on an H200 (driver 580.159).
TEST_F(Graphs, WhatGraphsAllocateStaysTheDriversUntilItIsTrimmed) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  OK(cuDeviceGraphMemTrim(0));
  std::size_t start = 0, total = 0;
  OK(cuMemGetInfo(&start, &total));
  const auto taken = [start] {
    std::size_t free = 0, all = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &all), CUDA_SUCCESS);
    return (start - free) / kMiB;
  };
  const CUstream s = stream(), other = stream();
  const auto make = [&](bool leaves, CUdeviceptr& kept) {
    CUgraph made = nullptr;
    CUgraphExec exec = nullptr;
    CUdeviceptr own[2] = {};
    EXPECT_EQ(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    for (CUdeviceptr& each : own) EXPECT_EQ(cuMemAllocAsync(&each, 64 * kMiB, s), CUDA_SUCCESS);
    if (leaves) {
      EXPECT_EQ(cuMemAllocAsync(&kept, 64, s), CUDA_SUCCESS);
    }
    for (const CUdeviceptr each : own) EXPECT_EQ(cuMemFreeAsync(each, s), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamEndCapture(s, &made), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, made, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(made), CUDA_SUCCESS);
    return exec;
  };
  CUdeviceptr kept[4] = {};
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < 4; ++i) execs.push_back(make(i == 1 || i == 2, kept[i]));
  EXPECT_EQ(taken(), 0u);  // with the launch, not before
  OK(cuGraphLaunch(execs[0], s));
  EXPECT_EQ(taken(), 128u);
  for (std::size_t i = 1; i < 3; ++i) {
    OK(cuGraphLaunch(execs[i], s));
    EXPECT_EQ(taken(), 128 + 32 * i);  // a piece for what each leaves
  }
  OK(cuGraphLaunch(execs[3], other));  // at the same time
  EXPECT_EQ(taken(), 128 + 64 + 128u);
  OK(cuCtxSynchronize());
  OK(cuGraphLaunch(execs[0], s));
  OK(cuCtxSynchronize());
  for (CUgraphExec exec : execs) OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(taken(), 128 + 64 + 128u);
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(taken(), 64u);
  for (std::size_t i = 1; i < 3; ++i) OK(cuMemFree(kept[i]));
  EXPECT_EQ(taken(), 64u);
  // And to whoever asks for all that is left, and for that.
  std::size_t free = 0;
  OK(cuMemGetInfo(&free, &total));
  CUdeviceptr all = 0;
  OK(cuMemAlloc(&all, free + 32 * kMiB));
  OK(cuMemFree(all));
  EXPECT_EQ(taken(), 0u);
}

TEST_F(Graphs, GenericNodes) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {number, 0, 5, 4, 1, 1, context};
  CUgraphNode node = nullptr;
  OK(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  const CUgraphExec exec = instantiate();
  EXPECT_EQ(run(exec), 5u);
  params.memset.value = 6;
  OK(cuGraphExecNodeSetParams(exec, node, &params));
  EXPECT_EQ(run(exec), 6u);
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
}

}  // namespace
