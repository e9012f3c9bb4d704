// Graphs that allocate and release memory of their own, more than the device has for all of them at once:
// `transient WHAT`. Prints what they computed, and to the standard error stream how much of the device's memory was
// in use.
//
//   one       all on one stream
//   apart     each on a stream of its own
//   later     all on one stream first, then on two at once
//   moved     all on one stream, then all on another
//   ended     on streams that end while they run
//   captured  on a stream that then captures, and others meanwhile on another
//   parts     some become part of others, by a clone, as a child, or by a launch that is captured
//   updated   executable graphs are updated from graphs with other memory
//   threads   by two threads at once, each with a stream of its own
//   lasting   they leave memory that the program releases
//   many      each leaves a little that is never released; prints how much of the device is free after each
//   context   in a context that ends
#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/programs/common/graph_program.h"

namespace {

constexpr std::size_t kOwn = std::size_t{40} << 20;
constexpr int kGraphs = 6, kRounds = 8;

struct Transient : GraphProgram {
  struct One {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUdeviceptr to = 0;
  };
  std::vector<One> graphs;
  std::size_t most = 0;

  CUdeviceptr own(std::size_t bytes = kOwn) const {
    CUdeviceptr pointer = 0;
    CHECK(cuMemAllocAsync(&pointer, bytes, stream));
    return pointer;
  }
  // Two branches that meet: what lies in memory of the graph's own is needed to its end.
  CUgraph capture_one(CUdeviceptr to, unsigned salt) const {
    return capture([&] {
      const CUdeviceptr a = own(), b = own(), small = own(kBytes);
      launch_mix(to, other, a, salt);
      launch_mix(other, to, b, salt + 1);
      launch_mix(a, b, small, salt + 2);
      launch_update(to, small);
      launch_update(to, a);
      for (const CUdeviceptr each : {b, small, a}) CHECK(cuMemFreeAsync(each, stream));
    });
  }
  void make_graphs(int count = kGraphs) {
    for (int i = 0; i < count; ++i) {
      One one;
      one.to = memory(kBytes, static_cast<unsigned>(i) + 1);
      one.graph = capture_one(one.to, static_cast<unsigned>(i) * 16);
      one.exec = make(one.graph);
      graphs.push_back(one);
    }
  }
  void launch(std::size_t which, CUstream on) const { CHECK(cuGraphLaunch(graphs[which].exec, on)); }
  void launch_all(CUstream on) const {
    for (std::size_t i = 0; i < graphs.size(); ++i) launch(i, on);
  }
  void see() {
    std::size_t free = 0, total = 0;
    CHECK(cuMemGetInfo(&free, &total));
    most = std::max(most, total - free);
  }
  void finish() {
    CHECK(cuCtxSynchronize());
    see();
    for (const One& one : graphs) note(one.to);
    for (const One& one : graphs) end(one.exec, one.graph);
    graphs.clear();
    CHECK(cuCtxSynchronize());
  }

  void one() {
    make_graphs();
    for (int i = 0; i < kRounds; ++i) launch_all(stream);
    finish();
  }
  void apart() {
    make_graphs(3);
    std::vector<CUstream> streams(graphs.size());
    for (CUstream& each : streams) CHECK(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < kRounds; ++i)
      for (std::size_t k = 0; k < streams.size(); ++k) launch(k, streams[k]);
    finish();
  }
  void later() {
    make_graphs(4);
    launch_all(stream);
    for (int i = 0; i < kRounds; ++i) {
      for (std::size_t k = 0; k < graphs.size(); ++k) launch(k, k % 2 ? second : stream);
      if (i % 3 == 2) CHECK(cuCtxSynchronize());
    }
    finish();
  }
  void moved() {
    make_graphs();
    for (int i = 0; i < kRounds; ++i) {
      launch_all(i % 2 ? second : stream);
      CHECK(cuStreamSynchronize(i % 2 ? second : stream));
    }
    finish();
  }
  void ended() {
    make_graphs(4);
    for (int i = 0; i < kRounds; ++i) {
      CUstream ends = nullptr;
      CHECK(cuStreamCreate(&ends, CU_STREAM_NON_BLOCKING));
      launch_all(ends);
      CHECK(cuStreamDestroy(ends));
      // Each in order with itself, and with no other.
      if (i % 2) CHECK(cuCtxSynchronize());
    }
    finish();
  }
  void captured() {
    make_graphs(4);
    for (int i = 0; i < kRounds; ++i) {
      launch(0, stream);
      launch(1, stream);
      CUgraph none = capture([&] { launch_mix(input, other, out[0], 1); }, CU_STREAM_CAPTURE_MODE_RELAXED);
      launch(2, second);
      CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      launch(3, second);
      launch_mix(input, other, out[1], 1);
      CUgraph another = nullptr;
      CHECK(cuStreamEndCapture(stream, &another));
      CHECK(cuGraphDestroy(none));
      CHECK(cuGraphDestroy(another));
    }
    finish();
  }
  // By itself the driver makes no part of another graph of one that has memory; then that is launched itself.
  void parts() {
    make_graphs(5);
    launch_all(stream);
    CHECK(cuCtxSynchronize());
    std::vector<CUgraph> others(3);
    std::vector<CUgraphExec> execs;
    cuGraphClone(&others[0], graphs[0].graph);
    CUgraphNode child = nullptr;
    CHECK(cuGraphCreate(&others[1], 0));
    cuGraphAddChildGraphNode(&child, others[1], nullptr, 0, graphs[1].graph);
    if (!child) CHECK(cuGraphDestroy(std::exchange(others[1], nullptr)));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    cuGraphLaunch(graphs[2].exec, stream);
    std::size_t nodes = 0;
    if (cuStreamEndCapture(stream, &others[2]) != CUDA_SUCCESS) others[2] = nullptr;
    if (others[2]) CHECK(cuGraphGetNodes(others[2], nullptr, &nodes));
    if (others[2] && nodes == 0) CHECK(cuGraphDestroy(std::exchange(others[2], nullptr)));
    for (std::size_t i = 0; i < others.size(); ++i) execs.push_back(others[i] ? make(others[i]) : graphs[i].exec);
    for (int i = 0; i < kRounds; ++i) {
      for (std::size_t k = 3; k < graphs.size(); ++k) launch(k, stream);
      for (const CUgraphExec each : execs) CHECK(cuGraphLaunch(each, second));
      if (i % 3 == 2) CHECK(cuCtxSynchronize());
    }
    CHECK(cuCtxSynchronize());
    for (std::size_t i = 0; i < others.size(); ++i)
      if (others[i]) end(execs[i], others[i]);
    finish();
  }
  void updated() {
    make_graphs(3);
    launch_all(stream);
    for (int i = 0; i < kRounds; ++i) {
      const auto which = static_cast<std::size_t>(i % 3);
      const CUgraph next = capture_one(graphs[which].to, 100 + static_cast<unsigned>(i));
      CUgraphExecUpdateResultInfo info{};
      if (cuGraphExecUpdate(graphs[which].exec, next, &info) != CUDA_SUCCESS) {  // as by itself the driver says
        CHECK(cuGraphExecDestroy(graphs[which].exec));
        graphs[which].exec = make(next);
      }
      CHECK(cuGraphDestroy(graphs[which].graph));
      graphs[which].graph = next;
      launch(which, second);
      launch((which + 1) % 3, stream);
    }
    finish();
  }
  void threads() {
    make_graphs(4);
    launch_all(stream);
    std::vector<std::thread> all;
    for (std::size_t t = 0; t < 2; ++t)
      all.emplace_back([&, t] {
        CHECK(cuCtxSetCurrent(context));
        const CUstream on = t ? second : stream;
        CHECK(cuCtxSynchronize());
        for (int i = 0; i < 4 * kRounds; ++i)
          for (std::size_t k = t; k < graphs.size(); k += 2) {
            launch(k, on);
            if (i % 8 == 7) CHECK(cuStreamSynchronize(on));
          }
      });
    for (std::thread& each : all) each.join();
    finish();
  }
  void lasting() {
    std::vector<CUdeviceptr> left;
    for (int i = 0; i < kGraphs; ++i) {
      One one;
      one.to = memory(kBytes);
      CUdeviceptr kept = 0;
      one.graph = capture([&] {
        const CUdeviceptr a = own(3 * kOwn);
        kept = own(kBytes);
        launch_mix(one.to, other, a, 1);
        launch_mix(a, one.to, kept, 2);
        CHECK(cuMemFreeAsync(a, stream));
      });
      one.exec = make(one.graph);
      graphs.push_back(one);
      left.push_back(kept);
    }
    for (int i = 0; i < kRounds; ++i) {
      launch_all(stream);
      CHECK(cuStreamSynchronize(stream));
      for (const CUdeviceptr each : left) {
        note(each);
        CHECK(cuMemFreeAsync(each, stream));
      }
    }
    finish();
  }
  void many() {
    std::size_t begin = 0;
    const auto tell = [&](const char* when) {
      std::size_t free = 0, total = 0;
      CHECK(cuMemGetInfo(&free, &total));
      if (begin == 0) begin = free;
      std::printf("%s: %lld MiB\n", when, (static_cast<long long>(begin) - static_cast<long long>(free)) / (1 << 20));
    };
    make_graphs(1);
    tell("captured");
    std::vector<CUdeviceptr> left;
    for (int i = 0; i < 2 * kGraphs; ++i) {
      One one;
      one.to = graphs.front().to;
      one.graph = capture([&] {
        const CUdeviceptr a = own(3 * kOwn / 2), b = own(3 * kOwn / 2);
        left.push_back(own(kBytes));
        launch_mix(input, other, a, 1);
        launch_mix(input, a, b, 2);
        launch_mix(a, b, left.back(), 3);
        launch_update(one.to, left.back());
        for (const CUdeviceptr each : {a, b}) CHECK(cuMemFreeAsync(each, stream));
      });
      one.exec = make(one.graph);
      graphs.push_back(one);
      launch(graphs.size() - 1, stream);
      tell("launched");
      if (i % 4 == 3) CHECK(cuStreamSynchronize(stream));
    }
    CHECK(cuCtxSynchronize());
    tell("done");
    launch(0, second);
    tell("on another stream");
    CHECK(cuMemFree(left.front()));
    tell("freed");
    CHECK(cuCtxSynchronize());
    CHECK(cuDeviceGraphMemTrim(0));
    tell("trimmed");
    launch(0, second);
    tell("launched");
    CHECK(cuCtxSynchronize());
    note(graphs.front().to);
    for (const One& one : graphs) CHECK(cuGraphExecDestroy(one.exec));
    for (const One& one : graphs) CHECK(cuGraphDestroy(one.graph));
    graphs.clear();
    tell("ended");
    for (std::size_t i = 1; i < left.size(); ++i) CHECK(cuMemFree(left[i]));
    CHECK(cuCtxSynchronize());
    tell("freed");
    CHECK(cuDeviceGraphMemTrim(0));
    tell("trimmed");
  }
  void in_context() {
    CHECK(cuMemFree(memory(kLarge)));
    see();
    const std::size_t before = most;
    for (int i = 0; i < 3; ++i) {
      CUcontext own = nullptr;
      CHECK(cuCtxCreate(&own, nullptr, 0, 0));
      {
        Transient inside{*this};
        inside.set_up();
        inside.graphs.clear();
        inside.make_graphs(4);
        inside.launch_all(inside.stream);
        inside.launch_all(inside.second);
        CHECK(cuCtxSynchronize());
        for (const One& each : inside.graphs) inside.note(each.to);
        digest = inside.digest;
      }
      CHECK(cuCtxDestroy(own));
      CHECK(cuCtxSetCurrent(context));
    }
    most = 0;
    see();
    std::printf("left over %zu MiB\n", (most - before) >> 20);
  }
};

}  // namespace

int main(int count, char** words) {
  const std::map<std::string, void (Transient::*)()> works = {
      {"one", &Transient::one},         {"apart", &Transient::apart},     {"later", &Transient::later},
      {"moved", &Transient::moved},     {"ended", &Transient::ended},     {"captured", &Transient::captured},
      {"parts", &Transient::parts},     {"updated", &Transient::updated}, {"threads", &Transient::threads},
      {"lasting", &Transient::lasting}, {"many", &Transient::many},       {"context", &Transient::in_context}};
  const auto work = works.find(count > 1 ? words[1] : "");
  if (work == works.end()) return 2;
  Transient program;
  (program.*work->second)();
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
  std::fprintf(stderr, "in use %zu MiB\n", program.most >> 20);
  return 0;
}
