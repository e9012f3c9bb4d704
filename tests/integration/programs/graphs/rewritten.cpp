// A program that captures its step as a graph and launches that: `rewritten WHAT STEPS` prints a digest of what all
// steps have computed. WHAT:
//   plain      two branches and what joins them, in memory from before
//   pool       the same, in memory that is allocated while it captures
//   opaque     an unknown kernel comes between
//   own        the program has given the graph branches itself
//   waiting    the same, and a kernel in one of them is unknown
//   forked     like learned, with branches of its own, one of which is not needed
//   update     every few steps the graph is updated from another one
//   set        every few steps a kernel's parameters are set
//   streams    launches alternate between two streams, each after the previous one
//   nested     the graph is a part of another, which is launched
//   many       every few steps it is captured anew, and the graph before ends
//   released   memory that it uses is released, and allocated anew
//   joined     two pieces of it are released, and lie in one allocation then
//   recapture  a stream captures launches of it
//   learned    unknown kernels, in memory that is allocated while it captures: Nimble is told to
//              learn from a few runs of the step and a first capture, and the second capture gets its memory by that
//   ended      the same, and before that another context has begun and ended
//   hosted     like learned, but the graph takes its input from the host's memory, where there may be pointers by then
//   unlearned  the same, but Nimble is told nothing
//   early      kernels may begin before the ones ahead of them have ended
//   clusters   like learned, but kernels may begin early, and run in clusters
//   strayed    the second capture is of another step than the first
//   late       the second capture releases its memory later than the first
//   long       like learned, but after more eager steps than a recording may hold
//   again      like learned, but the step computes the same each time
//   eased      like learned, but the first capture has an order that the second, in memory by its plan, has not
//   parts      two captures make the graph, one after the other
//   disabled   a node of it is switched off, and on again, and so on
//   hops       launches go to two streams in turn, and nothing but the driver keeps them apart; it is updated, too
//   foreign    it is launched on the default stream of another context
//   device     kernels may launch it
//   kept       Nimble is told to leave it alone
//   little     like plain, followed by a chain so long that the branches gain less than a hundredth
//   settled    the same, and once either graph has had its first turn Nimble brings the driver into another state
// Beside the digest it prints what memory of the device is taken in the end that was not when the first graph began.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256, kMany = 600, kChain = 300;
constexpr int kTurns = 8;  // launches in which the program's graph and the rewritten one have a turn each
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

struct Program {
  std::string what;
  CUmodule module = nullptr, others = nullptr;
  CUfunction mix = nullptr, update = nullptr, opaque = nullptr;
  CUstream stream = nullptr, second = nullptr;
  CUdeviceptr state[3] = {}, memory[3] = {};
  unsigned* input = nullptr;
  unsigned* output = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode mixes[2] = {};

  explicit Program(std::string name) : what(std::move(name)) {
    start_driver();
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuModuleLoad(&others, image_path("opaque.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&opaque, others, "advance"));
    if (is_opaque()) {
      CHECK(cuModuleGetFunction(&mix, others, "blend"));
      update = opaque;
    }
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; ++i) {
      CHECK(cuMemAlloc(&state[i], kBytes));
      CHECK(cuMemsetD32(state[i], static_cast<unsigned>(i) + 5, kCount));
      if (what != "joined") CHECK(cuMemAlloc(&memory[i], kBytes));
    }
    if (what == "joined")  // one after the other
      for (CUdeviceptr& each : memory) CHECK(cuMemAlloc(&each, kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input), kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&output), kBytes));
    CHECK(cuCtxSynchronize());
  }

  bool is_opaque() const {
    return what == "learned" || what == "unlearned" || what == "strayed" || what == "late" || what == "forked" ||
           what == "again" || what == "long" || what == "clusters" || what == "eased" || what == "ended" ||
           what == "hosted";
  }

  void launch(CUfunction kernel, CUstream on, void** arguments) const {
    CUlaunchAttribute attributes[2]{};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[0].value.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[1].value.clusterDim = {2, 1, 1};
    CUlaunchConfig config{};
    config.gridDimX = 4;
    config.blockDimX = 64;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = on;
    config.attrs = attributes;
    config.numAttrs = what == "clusters" ? 2 : what == "early" ? 1 : 0;
    CHECK(cuLaunchKernelEx(&config, kernel, arguments, nullptr));
  }

  void launch_mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt, CUstream on = nullptr) const {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    launch(mix, on ? on : stream, arguments);
  }
  void launch_update(CUdeviceptr target, CUdeviceptr change, CUstream on = nullptr) const {
    int count = kCount;
    void* arguments[] = {&target, &change, &count};
    launch(update, on ? on : stream, arguments);
  }
  void launch_opaque(CUdeviceptr target, CUdeviceptr change) const {
    int count = kCount;
    void* arguments[] = {&target, &change, &count};
    launch(opaque, stream, arguments);
  }

  // Two branches, each from the input to a state of its own, and what joins them.
  void step(unsigned salt) const {
    if (what == "forked") return forked_step_with_memory(salt);
    if (what == "again") return same_step();
    if (what == "eased") return eased_step(salt);
    CUdeviceptr x = memory[0], a = memory[1], b = memory[2];
    const bool allocates = what == "pool" || what == "many" || what == "parts" || is_opaque();
    if (allocates)
      for (CUdeviceptr* each : {&x, &a, &b})
        CHECK(cuMemAllocAsync(each, kBytes * (what == "strayed" ? salt : 1), stream));
    if (is_opaque() && what != "hosted") {
      CHECK(cuMemcpyDtoDAsync(x, memory[0], kBytes, stream));
    } else {
      CHECK(cuMemcpyHtoDAsync(x, input, kBytes, stream));
    }
    launch_mix(x, state[0], a, salt);
    launch_update(state[0], a);
    if (what == "opaque") launch_opaque(state[2], state[0]);
    if (what == "late") {
      // Memory that nothing else touches, which the second time is there for longer.
      CUdeviceptr early = 0, late = 0;
      CHECK(cuMemAllocAsync(&early, kBytes, stream));
      launch_mix(x, state[0], early, salt);
      launch_update(state[2], early);
      if (salt == 2) CHECK(cuMemFreeAsync(early, stream));
      CHECK(cuMemAllocAsync(&late, kBytes, stream));
      launch_mix(x, state[2], late, salt);
      if (salt != 2) launch_update(state[1], early);
      launch_update(state[2], late);
      if (salt != 2) CHECK(cuMemFreeAsync(early, stream));
      CHECK(cuMemFreeAsync(late, stream));
    }
    launch_mix(x, state[1], b, salt + 1);
    launch_update(state[1], b);
    CHECK(cuMemsetD32Async(a, salt, kCount, stream));
    launch_update(state[0], a);
    launch_update(state[2], state[0]);
    launch_update(state[2], state[1]);
    for (int i = 0; i < kChain && (what == "little" || what == "settled"); ++i) launch_update(state[2], state[i % 2]);
    if (allocates)
      for (const CUdeviceptr each : {x, a, b}) CHECK(cuMemFreeAsync(each, stream));
  }
  // Two branches and what joins them, of values that never change.
  void same_step() const {
    CUdeviceptr x = 0, a = 0, b = 0, c = 0;
    for (CUdeviceptr* each : {&x, &a, &b, &c}) CHECK(cuMemAllocAsync(each, kBytes, stream));
    CHECK(cuMemcpyDtoDAsync(x, state[0], kBytes, stream));
    launch_mix(x, state[0], a, 1);
    launch_mix(x, state[1], b, 1);
    launch_mix(a, b, c, 1);
    CHECK(cuMemcpyDtoDAsync(state[2], c, kBytes, stream));
    for (const CUdeviceptr each : {c, b, a, x}) CHECK(cuMemFreeAsync(each, stream));
  }
  // Two branches with memory of their own, serial only if salt is 2; and a third.
  void eased_step(unsigned salt) const {
    const auto branch = [&](int which, CUdeviceptr through, CUdeviceptr x) {
      CHECK(cuMemsetD32Async(through, salt + static_cast<unsigned>(which), kCount, stream));
      launch_update(through, x);
      launch_update(state[which], through);
    };
    CUdeviceptr x = 0, a = 0, b = 0, c = 0;
    for (CUdeviceptr* each : {&x, &c, &a}) CHECK(cuMemAllocAsync(each, kBytes, stream));
    CHECK(cuMemsetD32Async(x, salt, kCount, stream));
    branch(0, a, x);
    CHECK(cuMemFreeAsync(a, stream));
    if (salt == 2) launch_update(state[1], state[0]);
    CHECK(cuMemAllocAsync(&b, kBytes, stream));
    if (salt == 2) launch_update(b, state[1]);
    branch(1, b, x);
    CHECK(cuMemFreeAsync(b, stream));
    branch(2, c, x);
    launch_update(state[2], state[0]);
    launch_update(state[2], state[1]);
    for (const CUdeviceptr each : {c, x}) CHECK(cuMemFreeAsync(each, stream));
  }
  // Two branches from the input, on two streams of its own.
  void forked_step() const {
    CUevent fork = nullptr, join = nullptr;
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemcpyHtoDAsync(memory[0], input, kBytes, stream));
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(second, fork, 0));
    launch_update(state[0], memory[0]);
    if (what == "waiting") launch_opaque(state[0], memory[0]);
    launch_update(state[1], memory[0], second);
    CHECK(cuEventRecord(join, second));
    CHECK(cuStreamWaitEvent(stream, join, 0));
    launch_update(state[2], state[0]);
    launch_update(state[2], state[1]);
    CHECK(cuEventDestroy(fork));
    CHECK(cuEventDestroy(join));
  }
  // In memory that it allocates: a branch on another stream, and after its begin independent work.
  void forked_step_with_memory(unsigned salt) const {
    CUevent fork = nullptr, join = nullptr;
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr x = 0, a = 0, b = 0, c = 0;
    for (CUdeviceptr* each : {&x, &a, &b}) CHECK(cuMemAllocAsync(each, kBytes, stream));
    CHECK(cuMemsetD32Async(x, salt, kCount, stream));
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(second, fork, 0));
    launch_mix(x, state[1], b, salt + 1, second);
    launch_update(state[1], b, second);
    CHECK(cuEventRecord(join, second));
    launch_mix(x, state[0], a, salt);
    launch_update(state[0], a);
    CHECK(cuMemFreeAsync(a, stream));
    CHECK(cuMemAllocAsync(&c, kBytes, stream));
    launch_mix(x, state[2], c, salt);
    launch_update(state[2], c);
    CHECK(cuMemFreeAsync(c, stream));
    CHECK(cuStreamWaitEvent(stream, join, 0));
    launch_update(state[2], state[0]);
    launch_update(state[2], state[1]);
    for (const CUdeviceptr each : {x, b}) CHECK(cuMemFreeAsync(each, stream));
    CHECK(cuEventDestroy(fork));
    CHECK(cuEventDestroy(join));
  }

  CUgraph capture(unsigned salt) const {
    CUgraph captured = nullptr;
    if (what == "parts") return capture_in_parts(salt);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (what == "own" || what == "waiting") {
      forked_step();
    } else {
      step(salt);
    }
    CHECK(cuStreamEndCapture(stream, &captured));
    return captured;
  }
  // Two captures into one graph, the second after the last node of the first.
  CUgraph capture_in_parts(unsigned salt) const {
    CUgraph whole = nullptr;
    CHECK(cuGraphCreate(&whole, 0));
    for (int part = 0; part < 2; ++part) {
      std::size_t count = 0;
      CHECK(cuGraphGetNodes(whole, nullptr, &count));
      std::vector<CUgraphNode> nodes(count);
      if (count != 0) CHECK(cuGraphGetNodes(whole, nodes.data(), &count));
      CHECK(cuStreamBeginCaptureToGraph(stream, whole, count != 0 ? &nodes.back() : nullptr, nullptr, count != 0,
                                        CU_STREAM_CAPTURE_MODE_GLOBAL));
      step(salt + static_cast<unsigned>(part));
      CUgraph same = nullptr;
      CHECK(cuStreamEndCapture(stream, &same));
    }
    return whole;
  }
  // Where the step takes its input from if that is not in the graph.
  void give() const { CHECK(cuMemcpyHtoDAsync(memory[0], input, kBytes, stream)); }

  void learn() {
    if (what == "ended") {
      CUcontext other = nullptr;
      CHECK(cuCtxCreate(&other, nullptr, 0, 0));
      CHECK(cuCtxPopCurrent(&other));
      CHECK(cuCtxDestroy(other));
    }
    if (what == "again") step(3);
    CHECK(cuStreamSynchronize(stream));
    if (what != "unlearned") nimble_learn_begin();
    for (int i = 0; i < 3; ++i) {
      give();
      step(3);
    }
    CHECK(cuStreamSynchronize(stream));
    make(what == "strayed" || what == "late" || what == "eased" ? 2 : 3);
    if (what == "unlearned") return end();
    nimble_learn_end();
    end();
    if (nimble_capture_again() == NIMBLE_REFUSED) std::fprintf(stderr, "nothing is known\n");
  }

  void make(unsigned salt) {
    graph = capture(salt);
    const unsigned flags = what == "device" ? CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH : 0;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, flags));
  }
  void end() {
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    exec = nullptr;
    graph = nullptr;
  }

  // The parameters of the first mix become those of another salt; or the node is switched off, or on.
  void set(unsigned salt) const {
    std::size_t count = 0;
    CHECK(cuGraphGetNodes(graph, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    CHECK(cuGraphGetNodes(graph, nodes.data(), &count));
    for (CUgraphNode node : nodes) {
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      CHECK(cuGraphNodeGetType(node, &type));
      if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
      CUDA_KERNEL_NODE_PARAMS params{};
      CHECK(cuGraphKernelNodeGetParams(node, &params));
      if (params.func != mix) continue;
      if (what == "disabled") {
        CHECK(cuGraphNodeSetEnabled(exec, node, salt % 2));
        return;
      }
      void* arguments[5];
      std::memcpy(arguments, params.kernelParams, sizeof arguments);
      arguments[4] = &salt;
      params.kernelParams = arguments;
      CHECK(cuGraphExecKernelNodeSetParams(exec, node, &params));
      return;
    }
  }

  void change(unsigned salt) {
    if (what == "update" || what == "hops") {
      CUgraph other = capture(salt);
      CUgraphExecUpdateResultInfo info{};
      CHECK(cuGraphExecUpdate(exec, other, &info));
      CHECK(cuGraphDestroy(other));
    }
    if (what == "set" || what == "disabled") set(salt);
    if (what == "many") {
      end();
      make(salt);
    }
    if (what == "released" && salt == 3) {
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuMemFree(memory[1]));
      CUdeviceptr again = 0;
      CHECK(cuMemAlloc(&again, kBytes));
      if (again != memory[1]) std::fprintf(stderr, "another address\n");
    }
    if (what == "joined" && salt == 3) {
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuMemFree(memory[1]));
      CHECK(cuMemFree(memory[2]));
      CUdeviceptr both = 0;
      CHECK(cuMemAlloc(&both, memory[2] - memory[1] + kBytes));
      if (both != memory[1]) std::fprintf(stderr, "another address\n");
    }
  }
};

// Without what the driver keeps for memory of graphs that are over.
std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  CHECK(cuDeviceGraphMemTrim(0));
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  Program program(argv[1]);
  const int steps = std::atoi(argv[2]);
  const std::size_t free_before = free_memory();
  for (int i = 0; i < kMany && program.what == "long"; ++i) program.step(3);
  if (program.is_opaque()) program.learn();
  program.make(3);
  if (program.what == "kept") nimble_keep_graph(nullptr);
  CUgraph whole = nullptr;
  CUgraphExec launched = program.exec;
  if (program.what == "nested") {
    CUgraphNode node = nullptr;
    CHECK(cuGraphCreate(&whole, 0));
    CHECK(cuGraphAddChildGraphNode(&node, whole, nullptr, 0, program.graph));
    CHECK(cuGraphInstantiateWithFlags(&launched, whole, 0));
  }
  if (program.what == "recapture") {
    CHECK(cuStreamBeginCapture(program.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuGraphLaunch(program.exec, program.stream));
    CHECK(cuGraphLaunch(program.exec, program.stream));
    CHECK(cuStreamEndCapture(program.stream, &whole));
    CHECK(cuGraphInstantiateWithFlags(&launched, whole, 0));
  }
  if (program.what == "foreign") {
    CUcontext other = nullptr;
    CHECK(cuCtxCreate(&other, nullptr, 0, 0));  // it is current then
  }
  std::uint64_t digest = 14695981039346656037u;
  for (int i = 0; i < steps; ++i) {
    // Of those that hop only every eighth is waited for; in between the driver orders the launches.
    const bool hops = program.what == "hops", looks = !hops || i % 8 == 7;
    for (int k = 0; k < kCount; ++k) program.input[k] = static_cast<unsigned>((hops ? i / 8 : i) * 31 + k);
    if (i > 0 && i % 8 == 0) {
      program.change(static_cast<unsigned>(i) % 5);
      if (!whole) launched = program.exec;
    }
    const bool other = (hops || program.what == "streams") && i % 2;
    if (program.is_opaque()) program.give();
    const CUstream on = program.what == "foreign" ? nullptr : other ? program.second : program.stream;
    if (program.what == "settled" && i == kTurns && nimble_settle() == NIMBLE_REFUSED) return 3;
    CHECK(cuGraphLaunch(launched, on));
    if (!looks) continue;
    if (hops) CHECK(cuStreamSynchronize(program.stream));
    CHECK(cuMemcpyDtoHAsync(program.output, program.state[2], kBytes, on));
    CHECK(cuStreamSynchronize(on));
    for (int k = 0; k < kCount; ++k) digest = (digest ^ program.output[k]) * 1099511628211u;
  }
  nimble_graph_status status{};
  status.size = sizeof status;
  if (nimble_get_graph(launched, &status) == NIMBLE_SUCCESS)
    std::fprintf(stderr, "state %d, %u nodes on %u streams: %s\n", static_cast<int>(status.state), status.nodes,
                 status.streams, status.text);
  if (whole) {
    CHECK(cuGraphExecDestroy(launched));
    CHECK(cuGraphDestroy(whole));
  }
  program.end();
  CHECK(cuCtxSynchronize());
  std::printf("%016llx, %zu bytes more are taken\n", static_cast<unsigned long long>(digest),
              free_before - free_memory());
  return 0;
}
