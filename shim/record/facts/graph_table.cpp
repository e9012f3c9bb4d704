#include "shim/record/facts/graph_table.h"

#include "nimble/internal/launch_params.h"
#include "shim/intercept/decode/copy.h"

namespace nimble::shim {

namespace {

using decode::kReads;
using decode::kReadsAndWrites;
using decode::kWrites;

constexpr int kMostNested = 32;
constexpr const char* kRefused = "the driver does not report what its nodes do";

const char* why_not_read(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
      return "it holds a host function, which may touch anything";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "it waits for an event";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "it records an event";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "it uses a semaphore of another API";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "it waits for or writes values that others read";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "it holds a conditional node";
    default:
      return "it holds a node of an unknown type";
  }
}

void touch_set(std::vector<TraceAccess>& list, const CUDA_MEMSET_NODE_PARAMS& set) {
  decode::touch_box(list, set.dst, set.width * set.elementSize, set.height, 1, set.pitch, 1, kWrites);
}

}  // namespace

const char* GraphTable::kernel(const CUDA_KERNEL_NODE_PARAMS& params, Node& node) {
  // Runtimes pass a kernel handle, in its own field or in place of the function.
  const CUfunction handle = params.func ? params.func : reinterpret_cast<CUfunction>(params.kern);
  if (!handle) return "it holds a kernel without a function";
  GraphKernel kernel;
  kernel.function = &context_.function(handle);
  Call call;
  call.launch.kernel_params = params.kernelParams;
  call.launch.extra = params.extra;
  kernel.params.resize(kernel.function->param_bytes);
  if (!pack_params(call, *kernel.function, kernel.params.data()))
    return "it holds a kernel whose parameters are unknown";
  node.accesses.clear();
  node.kernels.assign(1, std::move(kernel));
  return nullptr;
}

const char* GraphTable::read_kernel(CUgraphNode handle, Node& node) {
  const auto get = driver<decltype(&::cuGraphKernelNodeGetParams_v2)>("cuGraphKernelNodeGetParams_v2");
  const auto attribute = driver<decltype(&::cuGraphKernelNodeGetAttribute)>("cuGraphKernelNodeGetAttribute");
  CUkernelNodeAttrValue value{};
  if (attribute && attribute(handle, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) == CUDA_SUCCESS &&
      value.deviceUpdatableKernelNode.deviceUpdatable)
    return "it holds a kernel that the device may change";
  if (attribute && attribute(handle, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS && value.cooperative)
    return "it holds a cooperative kernel";
  CUDA_KERNEL_NODE_PARAMS params{};
  if (!get || get(handle, &params) != CUDA_SUCCESS) return kRefused;
  return kernel(params, node);
}

const char* GraphTable::read(CUgraphNode handle, Graph& result, int depth) {
  const auto get_type = driver<decltype(&::cuGraphNodeGetType)>("cuGraphNodeGetType");
  CUgraphNodeType type{};
  if (!get_type || get_type(handle, &type) != CUDA_SUCCESS) return kRefused;
  Node node;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      if (const char* why = read_kernel(handle, node)) return why;
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const auto get = driver<decltype(&::cuGraphMemcpyNodeGetParams)>("cuGraphMemcpyNodeGetParams");
      CUDA_MEMCPY3D params{};
      if (!get || get(handle, &params) != CUDA_SUCCESS) return kRefused;
      if (!decode::touch_copy_3d(node.accesses, params)) return "it copies from or to an array";
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto get = driver<decltype(&::cuGraphMemsetNodeGetParams)>("cuGraphMemsetNodeGetParams");
      CUDA_MEMSET_NODE_PARAMS params{};
      if (!get || get(handle, &params) != CUDA_SUCCESS) return kRefused;
      touch_set(node.accesses, params);
      break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const auto get = driver<decltype(&::cuGraphChildGraphNodeGetGraph)>("cuGraphChildGraphNodeGetGraph");
      CUgraph child = nullptr;
      if (!get || get(handle, &child) != CUDA_SUCCESS) return kRefused;
      if (const char* why = walk(child, result, depth + 1)) return why;
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      const auto get = driver<decltype(&::cuGraphMemAllocNodeGetParams)>("cuGraphMemAllocNodeGetParams");
      CUDA_MEM_ALLOC_NODE_PARAMS params{};
      if (!get || get(handle, &params) != CUDA_SUCCESS) return kRefused;
      decode::touch_whole(node.accesses, params.dptr, kReadsAndWrites);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      const auto get = driver<decltype(&::cuGraphMemFreeNodeGetParams)>("cuGraphMemFreeNodeGetParams");
      CUdeviceptr pointer = 0;
      if (!get || get(handle, &pointer) != CUDA_SUCCESS) return kRefused;
      decode::touch_whole(node.accesses, pointer, kReadsAndWrites);
      break;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    default:
      return why_not_read(type);
  }
  result.nodes[handle] = std::move(node);
  return nullptr;
}

const char* GraphTable::walk(CUgraph graph, Graph& result, int depth) {
  if (depth > kMostNested) return "graphs are nested too deep in it";
  const auto get_nodes = driver<decltype(&::cuGraphGetNodes)>("cuGraphGetNodes");
  std::size_t count = 0;
  if (!get_nodes || get_nodes(graph, nullptr, &count) != CUDA_SUCCESS) return "the driver does not report its nodes";
  std::vector<CUgraphNode> nodes(count);
  if (count && get_nodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return "the driver does not report its nodes";
  for (std::size_t i = 0; i < std::min(count, nodes.size()); ++i) {
    if (const char* why = read(nodes[i], result, depth)) return why;
  }
  return nullptr;
}

void GraphTable::edited(const Call& call, bool succeeded) {
  const auto handle = [&](std::size_t i) {
    return reinterpret_cast<CUgraphNode>(const_cast<void*>(call.arguments[i]));
  };
  Graph graph;
  Node node;
  const char* why = nullptr;
  switch (call.graph.edit) {
    case GraphEdit::none:
    case GraphEdit::end:
    case GraphEdit::share:
    case GraphEdit::add_release:
      return;
    case GraphEdit::destroy: {
      const std::lock_guard lock(mutex_);
      if (succeeded) graphs_.erase(call.graph.exec);
      return;
    }
    case GraphEdit::instantiate:
    case GraphEdit::update:
      if (!succeeded && call.graph.edit == GraphEdit::instantiate) return;
      // A failed update may have changed part of it.
      why = succeeded ? walk(reinterpret_cast<CUgraph>(const_cast<void*>(call.arguments[0])), graph, 0)
                      : "an update of it failed";
      if (why) graph.why = why;
      break;
    case GraphEdit::set_kernel:
      if (succeeded) why = kernel(*static_cast<const CUDA_KERNEL_NODE_PARAMS*>(call.arguments[1]), node);
      break;
    case GraphEdit::set_copy:
      if (succeeded && !decode::touch_copy_3d(node.accesses, *static_cast<const CUDA_MEMCPY3D*>(call.arguments[1])))
        why = "it copies from or to an array";
      break;
    case GraphEdit::set_set:
      if (succeeded) touch_set(node.accesses, *static_cast<const CUDA_MEMSET_NODE_PARAMS*>(call.arguments[1]));
      break;
    case GraphEdit::set_other:
      why = "one of its nodes was changed in a way that is not tracked";
      break;
  }
  const bool whole = call.graph.edit == GraphEdit::instantiate || call.graph.edit == GraphEdit::update;
  if (!whole && !succeeded) return;  // the driver refused the call: nothing has changed
  const std::lock_guard lock(mutex_);
  if (whole) {
    graphs_[call.graph.exec] = std::move(graph);
    return;
  }
  const auto found = graphs_.find(call.graph.exec);
  if (found == graphs_.end()) return;
  Graph& changed = found->second;
  changed.published.reset();
  const auto at = changed.nodes.find(handle(0));
  if (!why && at == changed.nodes.end()) why = "a node was changed that it is not known to have";
  if (why) {
    if (changed.why.empty()) changed.why = why;
  } else {
    at->second = std::move(node);
  }
}

GraphShare GraphTable::of(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  const auto found = graphs_.find(exec);
  if (found == graphs_.end()) return nullptr;
  Graph& graph = found->second;
  const auto share = [&] {
    graph.published->shares.fetch_add(1, std::memory_order_relaxed);
    return GraphShare(graph.published.get());
  };
  if (graph.published) return share();
  GraphShare info(new GraphInfo);
  info->known = graph.why.empty();
  info->why = graph.why;
  if (info->known) {
    for (const auto& [handle, node] : graph.nodes) {
      info->accesses.insert(info->accesses.end(), node.accesses.begin(), node.accesses.end());
      info->kernels.insert(info->kernels.end(), node.kernels.begin(), node.kernels.end());
    }
  }
  graph.published = std::move(info);
  return share();
}

}  // namespace nimble::shim
