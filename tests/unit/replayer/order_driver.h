// A driver that runs nothing, but knows of every kernel launch what comes before it: by streams, events and the edges
// of graphs. Launches go by the number that they carry as their second parameter. What the host has waited for comes
// before all that it submits then.
//
// One at a time may serve the functions of api(), which have no other way to it. Not for several threads.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class OrderDriver final : public CallContext {
 public:
  static constexpr std::size_t kMost = 8192;
  using Before = std::bitset<kMost>;  // of a place in the order: the launches that come before it, by number

  OrderDriver() {
    instance_ = this;
    kernel_.name = "k";
    kernel_.params = {{0, 8}, {8, 4}};
    kernel_.param_bytes = 12;
  }
  ~OrderDriver() override { instance_ = nullptr; }
  OrderDriver(const OrderDriver&) = delete;
  OrderDriver& operator=(const OrderDriver&) = delete;

  const FunctionInfo& function(CUfunction) override { return kernel_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
  void* driver_symbol(const char*) override { return nullptr; }

  // What a program does. The same happens through api().
  void launch(CUstream stream, std::uint32_t number) { run(streams_[stream], number); }
  void record(CUevent event, CUstream stream) { events_[event] = streams_[stream] | host_; }
  void wait(CUstream stream, CUevent event) { streams_[stream] |= events_[event]; }

  // How often the launch ran, and what came before it.
  std::uint32_t runs(std::uint32_t number) const {
    const auto found = ran_.find(number);
    return found == ran_.end() ? 0 : found->second.times;
  }
  const Before& before(std::uint32_t number) const { return ran_.at(number).before; }

  DriverApi api();

  bool idle = true;  // what streams and events answer to whether all is done
  std::uint32_t graphs = 0;

  // Through api(), the nth from now of the calls that are no op of the program's is refused (0: none is), and the first
  // waits for a stream from there on, too.
  std::uint32_t refuse_at = 0, refuse_waits = 0;
  bool refused = false;

 private:
  struct Ran {
    std::uint32_t times = 0;
    Before before;
  };
  struct Node {
    std::vector<std::size_t> after;
    CUevent event = nullptr;  // a record; else a launch
    std::uint32_t number = 0;
  };

  void run(Before& place, std::uint32_t number) {
    place |= host_;
    Ran& mine = ran_[number];
    ++mine.times;
    mine.before = place;
    place.set(number);
  }
  void run(const std::vector<Node>& graph, CUstream stream) {
    const Before begin = streams_[stream] | host_;
    Before end = begin;
    std::vector<Before> up_to(graph.size());
    for (std::size_t i = 0; i < graph.size(); ++i) {
      up_to[i] = begin;
      for (const std::size_t node : graph[i].after) up_to[i] |= up_to[node];
      if (graph[i].event) {
        events_[graph[i].event] = up_to[i];
      } else {
        run(up_to[i], graph[i].number);
      }
      end |= up_to[i];
    }
    streams_[stream] = end;
    ++graphs;
  }
  static bool refuses() {
    const bool now = instance_->refuse_at != 0 && --instance_->refuse_at == 0;
    instance_->refused = instance_->refused || now;
    return now;
  }
  // For an op of the program's this is its own error, and none that may be refused here.
  static bool refuses(CUevent event) { return instance_->own_.contains(event) && refuses(); }
  static std::uint32_t number_of(void** params) { return *static_cast<std::uint32_t*>(params[1]); }
  static std::size_t index(CUgraphNode node) { return reinterpret_cast<std::size_t>(node) % kMost; }
  template <class Handle>
  static std::size_t id(Handle handle) {
    return reinterpret_cast<std::size_t>(handle) / kMost;
  }
  static CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count, Node node) {
    std::vector<Node>& nodes = instance_->made_[id(graph)];
    for (std::size_t i = 0; i < count; ++i) node.after.push_back(index(after[i]));
    *out = reinterpret_cast<CUgraphNode>(id(graph) * kMost + nodes.size());
    nodes.push_back(std::move(node));
    return CUDA_SUCCESS;
  }

  static inline OrderDriver* instance_ = nullptr;
  FunctionInfo kernel_;
  std::set<CUevent> own_;  // that api() has made
  Before host_;
  std::map<CUstream, Before> streams_;
  std::map<CUevent, Before> events_;
  std::map<std::uint32_t, Ran> ran_;
  std::map<std::size_t, std::vector<Node>> made_;  // graphs; an executable one is its graph
  std::size_t handles_ = 1;
};

inline DriverApi OrderDriver::api() {
  DriverApi api;
  api.cuCtxGetCurrent_ = [](CUcontext* out) { return *out = reinterpret_cast<CUcontext>(0x8), CUDA_SUCCESS; };
  api.cuCtxPushCurrent_ = [](CUcontext) { return CUDA_SUCCESS; };
  api.cuCtxPopCurrent_ = [](CUcontext* out) { return *out = nullptr, CUDA_SUCCESS; };
  api.cuEventCreate_ = [](CUevent* out, unsigned) {
    if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = reinterpret_cast<CUevent>(++instance_->handles_ << 32);
    instance_->own_.insert(*out);
    return CUDA_SUCCESS;
  };
  api.cuEventDestroy_ = [](CUevent) { return CUDA_SUCCESS; };
  api.cuEventRecord_ = [](CUevent event, CUstream stream) {
    if (refuses(event)) return CUDA_ERROR_OUT_OF_MEMORY;
    return instance_->record(event, stream), CUDA_SUCCESS;
  };
  api.cuStreamWaitEvent_ = [](CUstream stream, CUevent event, unsigned) {
    if (refuses(event)) return CUDA_ERROR_OUT_OF_MEMORY;
    return instance_->wait(stream, event), CUDA_SUCCESS;
  };
  api.cuEventQuery_ = [](CUevent) {
    if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
    return instance_->idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  api.cuStreamQuery_ = [](CUstream) {
    if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
    return instance_->idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  api.cuStreamSynchronize_ = [](CUstream stream) {
    if (instance_->refused && instance_->refuse_waits != 0) return --instance_->refuse_waits, CUDA_ERROR_OUT_OF_MEMORY;
    return instance_->host_ |= instance_->streams_[stream], CUDA_SUCCESS;
  };
  api.cuStreamIsCapturing_ = [](CUstream, CUstreamCaptureStatus* out) {
    return *out = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
  };
  api.cuLaunchKernel_ = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           CUstream stream, void** params,
                           void**) { return instance_->launch(stream, number_of(params)), CUDA_SUCCESS; };
  api.cuGraphCreate_ = [](CUgraph* out, unsigned) {
    return *out = reinterpret_cast<CUgraph>(++instance_->handles_ * kMost), CUDA_SUCCESS;
  };
  api.cuGraphDestroy_ = [](CUgraph) { return CUDA_SUCCESS; };
  api.cuGraphAddKernelNode_ = [](CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* node) {
    return add(out, graph, after, count, {{}, nullptr, number_of(node->kernelParams)});
  };
  api.cuGraphAddEventRecordNode_ = [](CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                      CUevent event) {
    return add(out, graph, after, count, {{}, event, 0});
  };
  api.cuGraphInstantiateWithFlags_ = [](CUgraphExec* out, CUgraph graph, unsigned long long) {
    return *out = reinterpret_cast<CUgraphExec>(graph), CUDA_SUCCESS;
  };
  api.cuGraphExecDestroy_ = [](CUgraphExec) { return CUDA_SUCCESS; };
  api.cuGraphExecKernelNodeSetParams_ = [](CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
    if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
    instance_->made_[id(exec)][index(node)].number = number_of(params->kernelParams);
    return CUDA_SUCCESS;
  };
  api.cuGraphExecEventRecordNodeSetEvent_ = [](CUgraphExec exec, CUgraphNode node, CUevent event) {
    instance_->made_[id(exec)][index(node)].event = event;
    return CUDA_SUCCESS;
  };
  api.cuGraphLaunch_ = [](CUgraphExec exec, CUstream stream) {
    if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
    return instance_->run(instance_->made_[id(exec)], stream), CUDA_SUCCESS;
  };
  return api;
}

}  // namespace nimble
