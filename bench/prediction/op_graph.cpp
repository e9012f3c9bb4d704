// Runs the op graph of a published network (bench/policies/graphs.h) as a framework would: one stream, each op's output
// in stream-ordered memory that is released after its last reader. Each op is one kernel with the duration,
// multiprocessors and bytes moved that the roofline predicts for the real one.
//
//   op_graph list | op_graph GRAPH STEPS
//
// Prints one JSON object: steps, the device's time for a step from first to last (events), and a digest of the results.
// Its kernel is in an image beside it: op_graph.fatbin for a GPU, op_graph.simcuda for the simulated driver.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/policies/graphs.h"

namespace {

using nimble::bench::OpGraph;

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const CUresult check_result_ = (call);                                                            \
    if (check_result_ != CUDA_SUCCESS) {                                                              \
      std::fprintf(stderr, "op_graph: line %d: %s: error %d\n", __LINE__, #call, (int)check_result_); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (false)

constexpr std::size_t kMostInputs = 8;
constexpr unsigned kResultWords = 1 << 12;
constexpr unsigned kThreads = 1024;  // two blocks would fit on a multiprocessor, were it not for their shared memory
constexpr unsigned kShared = 120 * 1024;

struct Op {
  std::vector<std::uint32_t> reads, last_reads;  // whose outputs it reads; those that no op reads after it
  unsigned blocks = 1, input_words = ~0u, read_words = 0, written_words = 0;
  long long cycles = 0;
};

std::vector<Op> ops_of(const OpGraph& graph, double cycles_per_us, const nimble::DeviceModel& device) {
  std::vector<Op> ops(graph.reads.nodes());
  std::vector<std::uint32_t> last(ops.size(), 0);
  for (std::uint32_t node = 0; node < ops.size(); ++node) {
    Op& op = ops[node];
    const auto& cost = graph.costs[node];
    for (const std::uint32_t from : graph.reads.predecessors(node)) {
      op.reads.push_back(from);
      op.input_words = std::min(op.input_words, ops[from].written_words);
      last[from] = node;
    }
    if (op.reads.size() > kMostInputs) {
      std::fprintf(stderr, "op_graph: an op reads %zu others\n", op.reads.size());
      std::exit(1);
    }
    op.blocks = static_cast<unsigned>(std::max(cost.multiprocessors, 1) * std::max(cost.waves, 1));
    const double bytes = cost.bandwidth * device.memory_gb_s * 1e3 * cost.device_us;
    op.read_words = static_cast<unsigned>(bytes / 8);
    op.written_words = std::max(static_cast<unsigned>(bytes / 8), kResultWords);
    op.cycles = static_cast<long long>(cost.device_us / std::max(cost.waves, 1) * cycles_per_us);
  }
  for (std::uint32_t node = 0; node < ops.size(); ++node)
    if (last[node] != 0) ops[last[node]].last_reads.push_back(node);
  return ops;
}

class Program {
 public:
  Program() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    int khz = 0;
    CHECK(cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device));
    cycles_per_us = khz / 1e3;
    char path[PATH_MAX] = {};
    std::string folder = realpath("/proc/self/exe", path) != nullptr ? path : "";
    folder.resize(folder.rfind('/') + 1);
    CUmodule module = nullptr;
    if (cuModuleLoad(&module, (folder + "op_graph.fatbin").c_str()) != CUDA_SUCCESS)
      CHECK(cuModuleLoad(&module, (folder + "op_graph.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&work_, module, "_Z4workPjPKjS1_S1_S1_S1_S1_S1_S1_jjjjx"));
    simulated_ = cuFuncSetAttribute(work_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kShared) != CUDA_SUCCESS;
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUevent& event : events_) CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&result_, kResult));
    CHECK(cuMemsetD8(result_, 1, kResult));
  }

  void step(const std::vector<Op>& ops) {
    std::vector<CUdeviceptr> outputs(ops.size());
    for (std::uint32_t node = 0; node < ops.size(); ++node) {
      const Op& op = ops[node];
      CHECK(cuMemAllocAsync(&outputs[node], op.written_words * std::size_t{4}, stream_));
      std::array<CUdeviceptr, kMostInputs> inputs{};
      for (std::size_t i = 0; i < op.reads.size(); ++i) inputs[i] = outputs[op.reads[i]];
      if (op.reads.empty()) inputs[0] = result_;
      launch(op, outputs[node], inputs, node);
      for (const std::uint32_t done : op.last_reads) CHECK(cuMemFreeAsync(outputs[done], stream_));
      unread_.erase(std::remove_if(unread_.begin(), unread_.end(),
                                   [&](std::uint32_t other) {
                                     return std::find(op.reads.begin(), op.reads.end(), other) != op.reads.end();
                                   }),
                    unread_.end());
      unread_.push_back(node);
    }
    // Unread outputs are the result.
    for (const std::uint32_t node : unread_) {
      CHECK(cuMemcpyDtoDAsync(result_, outputs[node], kResult, stream_));
      CHECK(cuMemFreeAsync(outputs[node], stream_));
    }
    unread_.clear();
  }

  // Microseconds on the device per step, over `steps` in a row.
  double run(const std::vector<Op>& ops, int steps) {
    CHECK(cuEventRecord(events_[0], stream_));
    for (int i = 0; i < steps; ++i) step(ops);
    CHECK(cuEventRecord(events_[1], stream_));
    CHECK(cuStreamSynchronize(stream_));
    float milliseconds = 0;
    CHECK(cuEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return milliseconds * 1e3 / steps;
  }

  std::uint64_t digest() const {
    std::vector<unsigned char> bytes(kResult);
    CHECK(cuMemcpyDtoH(bytes.data(), result_, kResult));
    std::uint64_t digest = 14695981039346656037u;  // FNV-1a
    for (const unsigned char byte : bytes) digest = (digest ^ byte) * 1099511628211u;
    return digest;
  }

  double cycles_per_us = 0;

 private:
  static constexpr std::size_t kResult = std::size_t{4} * kResultWords;

  void launch(const Op& op, CUdeviceptr out, std::array<CUdeviceptr, kMostInputs>& inputs, unsigned salt) {
    unsigned words = op.reads.empty() ? kResultWords : op.input_words, reads = op.read_words, writes = op.written_words;
    long long cycles = op.cycles;
    void* arguments[] = {&out,       &inputs[0], &inputs[1], &inputs[2], &inputs[3], &inputs[4], &inputs[5],
                         &inputs[6], &inputs[7], &words,     &reads,     &writes,    &salt,      &cycles};
    CHECK(
        cuLaunchKernel(work_, op.blocks, 1, 1, kThreads, 1, 1, simulated_ ? 0 : kShared, stream_, arguments, nullptr));
  }

  CUfunction work_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUevent, 2> events_{};
  CUdeviceptr result_ = 0;
  bool simulated_ = false;
  std::vector<std::uint32_t> unread_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<OpGraph> graphs = nimble::bench::all_graphs();
  if (argc == 2 && std::strcmp(argv[1], "list") == 0) {
    for (const OpGraph& graph : graphs) std::printf("%s\n", graph.name.c_str());
    return 0;
  }
  const auto graph = std::find_if(graphs.begin(), graphs.end(),
                                  [&](const OpGraph& each) { return argc == 3 && each.name == argv[1]; });
  const int steps = argc == 3 ? std::atoi(argv[2]) : 0;
  if (graph == graphs.end() || steps < 1) {
    std::fprintf(stderr, "Usage: op_graph list | op_graph GRAPH STEPS\n");
    return 2;
  }
  Program program;
  const std::vector<Op> ops = ops_of(*graph, program.cycles_per_us, {});
  program.run(ops, 5);
  const double us = program.run(ops, steps);
  std::printf("{\"graph\": \"%s\", \"ops\": %zu, \"steps\": %d, \"gpu_us_per_step\": %.3f, \"digest\": \"%016llx\"}\n",
              graph->name.c_str(), ops.size(), steps, us, static_cast<unsigned long long>(program.digest()));
  return 0;
}
