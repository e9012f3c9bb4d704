// The calls that add nodes to a graph, and that read and change what they do.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/graph_nodes.h"
#include "tests/simcuda/memory/copy.h"

namespace simcuda {
namespace {

// A node with its edges and nothing to do yet; null if the graph or a dependency is invalid.
CUgraphNode add(CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data, std::size_t count,
                CUgraphNodeType type, WorkKind kind, const char* name) {
  if (!valid(graph) || (count != 0 && dependencies == nullptr)) return nullptr;
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < count; ++i) {
    if (!valid(dependencies[i]) || dependencies[i]->graph != graph) return nullptr;
    if (std::any_of(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.node == dependencies[i]; })) {
      return nullptr;
    }
    edges.push_back({dependencies[i], data != nullptr ? data[i] : CUgraphEdgeData{}});
  }
  return add_node(graph, type, make_work(kind, name), edges);
}

// Takes back a node that turned out to be wrong. It is the last of its graph, and nothing depends on it.
CUresult take_back(CUgraphNode node, CUresult error) {
  for (const Edge& edge : node->dependencies) edge.node->dependents.pop_back();
  node->graph->nodes.pop_back();
  driver().nodes.release(node);
  return error;
}

CUresult finish(CUgraphNode* out, CUgraphNode node, CUresult result) {
  if (result != CUDA_SUCCESS) return take_back(node, result);
  *out = node;
  return CUDA_SUCCESS;
}

CUresult set_child(CUgraphNode node, CUgraph graph, bool take_it) {
  if (!valid(graph) || graph == node->graph || graph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->child = take_it ? graph : clone_graph(graph);
  node->child->owner = node;
  return CUDA_SUCCESS;
}

CUresult set_allocation(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS& params) {
  if (params.bytesize == 0 || params.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE || params.poolProps.location.id != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto memory = std::make_shared<GraphMemory>(params.bytesize, current_context());
  if (memory->block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  node->work.memory = {memory->block, params.bytesize};
  node->memory = std::move(memory);
  node->pool_props = params.poolProps;
  if (params.accessDescs != nullptr) {
    node->access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  }
  params.dptr = node->memory->block->base;
  return CUDA_SUCCESS;
}

CUresult set_release(CUgraphNode node, CUdeviceptr pointer) {
  Block* block = driver().memory.find(pointer);
  if (block == nullptr || block->base != pointer || block->kind != BlockKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  node->work.memory = {block, block->bytes};
  node->memory = block->graph_memory->shared_from_this();
  return CUDA_SUCCESS;
}

bool is(CUgraphNode node, CUgraphNodeType type) { return valid(node) && node->type == type; }

}  // namespace
}  // namespace simcuda

using namespace simcuda;

// --- Kernels ---

static CUresult add_kernel(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                           const CUDA_KERNEL_NODE_PARAMS& params) {
  CUgraphNode node = add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_KERNEL, WorkKind::kKernel, "");
  return node != nullptr ? finish(out, node, set_kernel(node, params)) : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuGraphAddKernelNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
          const CUDA_KERNEL_NODE_PARAMS_v1* params),
         (out, graph, dependencies, count, params)) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel(out, graph, dependencies, count, widen(*params));
}
SIM_CALL(cuGraphAddKernelNode_v2, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
          const CUDA_KERNEL_NODE_PARAMS* params),
         (out, graph, dependencies, count, params)) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel(out, graph, dependencies, count, *params);
}

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS& params) {
  if (!is(node, CU_GRAPH_NODE_TYPE_KERNEL)) return CUDA_ERROR_INVALID_VALUE;
  Work& work = node->work;
  const Launch& launch = work.launch;
  const SimKernel& kernel = launch.code->kernel;
  node->parameters.clear();
  for (std::uint32_t i = 0; i < kernel.param_count; ++i) {
    node->parameters.push_back(work.parameters.data() + kernel.params[i].offset);
  }
  params = {};
  params.func = launch.function;
  if (!valid(launch.function)) {  // a kernel of a library, given as a function
    params.kern = reinterpret_cast<CUkernel>(launch.function);
    params.func = function_of(module_of(params.kern->library, launch.context), launch.code);
  }
  params.gridDimX = launch.grid.x;
  params.gridDimY = launch.grid.y;
  params.gridDimZ = launch.grid.z;
  params.blockDimX = launch.block.x;
  params.blockDimY = launch.block.y;
  params.blockDimZ = launch.block.z;
  params.sharedMemBytes = launch.shared_bytes;
  params.kernelParams = node->parameters.data();
  params.ctx = launch.context;
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphKernelNodeGetParams, kInit, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params), (node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide;
  if (const CUresult error = get_kernel(node, wide)) return error;
  std::memcpy(params, &wide, sizeof *params);
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphKernelNodeGetParams_v2, kInit, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params), (node, params)) {
  return params != nullptr ? get_kernel(node, *params) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphKernelNodeSetParams, kInit, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params),
         (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_KERNEL)) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(node, widen(*params));
}
SIM_CALL(cuGraphKernelNodeSetParams_v2, kInit, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params),
         (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_KERNEL)) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(node, *params);
}

SIM_CALL(cuGraphKernelNodeGetAttribute, kInit, (CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value),
         (node, id, value)) {
  if (value == nullptr || !is(node, CU_GRAPH_NODE_TYPE_KERNEL)) return CUDA_ERROR_INVALID_VALUE;
  const auto found = node->attributes.find(id);
  *value = found != node->attributes.end() ? found->second : CUkernelNodeAttrValue{};
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphKernelNodeSetAttribute, kInit,
         (CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value), (node, id, value)) {
  if (value == nullptr || !is(node, CU_GRAPH_NODE_TYPE_KERNEL)) return CUDA_ERROR_INVALID_VALUE;
  node->attributes[id] = *value;
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphKernelNodeCopyAttributes, kInit, (CUgraphNode to, CUgraphNode from), (to, from)) {
  if (!is(to, CU_GRAPH_NODE_TYPE_KERNEL) || !is(from, CU_GRAPH_NODE_TYPE_KERNEL)) return CUDA_ERROR_INVALID_VALUE;
  to->attributes = from->attributes;
  return CUDA_SUCCESS;
}

// --- Copies and sets ---

SIM_CALL(cuGraphAddMemcpyNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count, const CUDA_MEMCPY3D* params,
          CUcontext context),
         (out, graph, dependencies, count, params, context)) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  CUgraphNode node =
      add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_MEMCPY, WorkKind::kCopy, "cuGraphAddMemcpyNode");
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->context = context;
  return finish(out, node, set_copy(node, *params));
}
SIM_CALL(cuGraphMemcpyNodeGetParams, kInit, (CUgraphNode node, CUDA_MEMCPY3D* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_MEMCPY)) return CUDA_ERROR_INVALID_VALUE;
  *params = node->copy;
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphMemcpyNodeSetParams, kInit, (CUgraphNode node, const CUDA_MEMCPY3D* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_MEMCPY)) return CUDA_ERROR_INVALID_VALUE;
  return set_copy(node, *params);
}

SIM_CALL(cuGraphAddMemsetNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
          const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context),
         (out, graph, dependencies, count, params, context)) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  CUgraphNode node =
      add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_MEMSET, WorkKind::kSet, "cuGraphAddMemsetNode");
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->context = context;
  return finish(out, node, set_set(node, *params));
}
SIM_CALL(cuGraphMemsetNodeGetParams, kInit, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_MEMSET)) return CUDA_ERROR_INVALID_VALUE;
  *params = node->set;
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphMemsetNodeSetParams, kInit, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_MEMSET)) return CUDA_ERROR_INVALID_VALUE;
  return set_set(node, *params);
}

// --- Host functions, events, nothing, other graphs ---

SIM_CALL(cuGraphAddHostNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
          const CUDA_HOST_NODE_PARAMS* params),
         (out, graph, dependencies, count, params)) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node =
      add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_HOST, WorkKind::kHost, "cuGraphAddHostNode");
  return node != nullptr ? finish(out, node, set_host(node, *params)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphHostNodeGetParams, kInit, (CUgraphNode node, CUDA_HOST_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_HOST)) return CUDA_ERROR_INVALID_VALUE;
  *params = {node->work.host.function, node->work.host.data};
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphHostNodeSetParams, kInit, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_HOST)) return CUDA_ERROR_INVALID_VALUE;
  return set_host(node, *params);
}

SIM_CALL(cuGraphAddEmptyNode, kInit, (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count),
         (out, graph, dependencies, count)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_EMPTY, WorkKind::kEmpty, "empty");
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuGraphAddEventRecordNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUevent event),
         (out, graph, dependencies, count, event)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node = add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, WorkKind::kEventRecord,
                         "cuEventRecord");
  return node != nullptr ? finish(out, node, set_event(node, event)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphAddEventWaitNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUevent event),
         (out, graph, dependencies, count, event)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node = add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, WorkKind::kEventWait,
                         "cuStreamWaitEvent");
  return node != nullptr ? finish(out, node, set_event(node, event)) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent* event) {
  if (event == nullptr || !is(node, type)) return CUDA_ERROR_INVALID_VALUE;
  *event = node->work.event.event;
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphEventRecordNodeGetEvent, kInit, (CUgraphNode node, CUevent* event), (node, event)) {
  return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SIM_CALL(cuGraphEventWaitNodeGetEvent, kInit, (CUgraphNode node, CUevent* event), (node, event)) {
  return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
SIM_CALL(cuGraphEventRecordNodeSetEvent, kInit, (CUgraphNode node, CUevent event), (node, event)) {
  return is(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD) ? set_event(node, event) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphEventWaitNodeSetEvent, kInit, (CUgraphNode node, CUevent event), (node, event)) {
  return is(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT) ? set_event(node, event) : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuGraphAddChildGraphNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child),
         (out, graph, dependencies, count, child)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node = add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_GRAPH, WorkKind::kEmpty, "graph");
  return node != nullptr ? finish(out, node, set_child(node, child, false)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphChildGraphNodeGetGraph, kInit, (CUgraphNode node, CUgraph* graph), (node, graph)) {
  if (graph == nullptr || !is(node, CU_GRAPH_NODE_TYPE_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
  *graph = node->child;
  return CUDA_SUCCESS;
}

// --- Memory ---

SIM_CALL(cuGraphAddMemAllocNode, kContext,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
          CUDA_MEM_ALLOC_NODE_PARAMS* params),
         (out, graph, dependencies, count, params)) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node =
      add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, WorkKind::kAlloc, "cuMemAllocAsync");
  return node != nullptr ? finish(out, node, set_allocation(node, *params)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphMemAllocNodeGetParams, kInit, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr || !is(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC)) return CUDA_ERROR_INVALID_VALUE;
  *params = {};
  params->poolProps = node->pool_props;
  params->accessDescs = node->access.empty() ? nullptr : node->access.data();
  params->accessDescCount = node->access.size();
  params->bytesize = node->work.memory.bytes;
  params->dptr = node->memory->block->base;
  return CUDA_SUCCESS;
}

SIM_CALL(cuGraphAddMemFreeNode, kInit,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUdeviceptr pointer),
         (out, graph, dependencies, count, pointer)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node =
      add(graph, dependencies, nullptr, count, CU_GRAPH_NODE_TYPE_MEM_FREE, WorkKind::kFree, "cuMemFreeAsync");
  return node != nullptr ? finish(out, node, set_release(node, pointer)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_CALL(cuGraphMemFreeNodeGetParams, kInit, (CUgraphNode node, CUdeviceptr* pointer), (node, pointer)) {
  if (pointer == nullptr || !is(node, CU_GRAPH_NODE_TYPE_MEM_FREE)) return CUDA_ERROR_INVALID_VALUE;
  *pointer = node->work.memory.block->base;
  return CUDA_SUCCESS;
}

// --- Any node ---

static CUresult add_any(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                        std::size_t count, CUgraphNodeParams* params) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static const auto& kinds = *new std::map<CUgraphNodeType, std::pair<WorkKind, const char*>>{
      {CU_GRAPH_NODE_TYPE_KERNEL, {WorkKind::kKernel, ""}},
      {CU_GRAPH_NODE_TYPE_MEMCPY, {WorkKind::kCopy, "cuGraphAddMemcpyNode"}},
      {CU_GRAPH_NODE_TYPE_MEMSET, {WorkKind::kSet, "cuGraphAddMemsetNode"}},
      {CU_GRAPH_NODE_TYPE_HOST, {WorkKind::kHost, "cuGraphAddHostNode"}},
      {CU_GRAPH_NODE_TYPE_GRAPH, {WorkKind::kEmpty, "graph"}},
      {CU_GRAPH_NODE_TYPE_EMPTY, {WorkKind::kEmpty, "empty"}},
      {CU_GRAPH_NODE_TYPE_WAIT_EVENT, {WorkKind::kEventWait, "cuStreamWaitEvent"}},
      {CU_GRAPH_NODE_TYPE_EVENT_RECORD, {WorkKind::kEventRecord, "cuEventRecord"}},
      {CU_GRAPH_NODE_TYPE_MEM_ALLOC, {WorkKind::kAlloc, "cuMemAllocAsync"}},
      {CU_GRAPH_NODE_TYPE_MEM_FREE, {WorkKind::kFree, "cuMemFreeAsync"}}};
  const auto kind = kinds.find(params->type);
  if (kind == kinds.end()) return not_supported("a graph node of this type");
  CUgraphNode node = add(graph, dependencies, data, count, params->type, kind->second.first, kind->second.second);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->context = current_context();
  CUresult result = CUDA_SUCCESS;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      result = set_child(node, params->graph.graph, params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS alloc;
      static_assert(sizeof alloc == sizeof params->alloc);
      std::memcpy(&alloc, &params->alloc, sizeof alloc);
      result = set_allocation(node, alloc);
      params->alloc.dptr = alloc.dptr;
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      result = set_release(node, params->free.dptr);
      break;
    default:
      result = set_any(node, *params);
      break;
  }
  return finish(out, node, result);
}

SIM_CALL(cuGraphAddNode, kContext,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraphNodeParams* params),
         (out, graph, dependencies, count, params)) {
  return add_any(out, graph, dependencies, nullptr, count, params);
}
SIM_CALL(cuGraphAddNode_v2, kContext,
         (CUgraphNode * out, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count,
          CUgraphNodeParams* params),
         (out, graph, dependencies, data, count, params)) {
  return add_any(out, graph, dependencies, data, count, params);
}
SIM_CALL(cuGraphNodeSetParams, kContext, (CUgraphNode node, CUgraphNodeParams* params), (node, params)) {
  return valid(node) && params != nullptr ? set_any(node, *params) : CUDA_ERROR_INVALID_VALUE;
}
