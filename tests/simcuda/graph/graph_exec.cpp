// Executable graphs: flattened to a list of steps in an order that respects the edges, changed step by step, and
// launched as one op for each step. See graph.h.
#include <algorithm>
#include <cstdio>
#include <queue>

#include "tests/simcuda/engine/op_failure.h"
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"
#include "tests/simcuda/graph/graph_nodes.h"

namespace simcuda {
namespace {

using Step = CUgraphExec_st::Step;

// Nodes of one graph, each after all that it depends on, otherwise as they were added. Empty if there is a cycle.
std::vector<CUgraphNode> in_order(CUgraph graph) {
  std::unordered_map<CUgraphNode, std::size_t> index, missing;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    index[graph->nodes[i]] = i;
    missing[graph->nodes[i]] = graph->nodes[i]->dependencies.size();
    if (graph->nodes[i]->dependencies.empty()) ready.push(i);
  }
  std::vector<CUgraphNode> order;
  while (!ready.empty()) {
    CUgraphNode node = graph->nodes[ready.top()];
    ready.pop();
    order.push_back(node);
    for (const Edge& edge : node->dependents) {
      if (--missing[edge.node] == 0) ready.push(index[edge.node]);
    }
  }
  if (order.size() != graph->nodes.size()) order.clear();
  return order;
}

std::uint32_t add_step(CUgraphExec exec, Step&& step) {
  for (std::uint32_t before : step.after) ++exec->steps[before].followers;
  exec->steps.push_back(std::move(step));
  return static_cast<std::uint32_t>(exec->steps.size() - 1);
}

Step between(std::vector<std::uint32_t> after, std::uint64_t uid) {
  Step step;
  step.work = make_work(WorkKind::kEmpty, "graph");
  step.node_uid = uid;
  step.after = std::move(after);
  return step;
}

// Appends the steps of a graph after `first`. A child graph stands between two steps that do nothing.
bool flatten(CUgraphExec exec, CUgraph graph, const std::vector<std::uint32_t>& first,
             std::vector<std::uint32_t>* leaves) {
  const std::vector<CUgraphNode> order = in_order(graph);
  if (order.size() != graph->nodes.size()) return false;
  std::unordered_map<CUgraphNode, std::uint32_t> step_of;
  for (CUgraphNode node : order) {
    std::vector<std::uint32_t> after;
    for (const Edge& edge : node->dependencies) after.push_back(step_of[edge.node]);
    if (after.empty()) after = first;
    std::uint32_t index = 0;
    if (node->child != nullptr) {
      std::vector<std::uint32_t> inner;
      const std::uint32_t begin = add_step(exec, between(std::move(after), 0));
      if (!flatten(exec, node->child, {begin}, &inner)) return false;
      if (inner.empty()) inner.push_back(begin);
      index = add_step(exec, between(std::move(inner), node->uid));
    } else {
      Step step;
      step.work = node->work;
      step.type = node->type;
      step.node_uid = node->uid;
      step.after = std::move(after);
      step.attributes = node->attributes;
      step.memory = node->memory;
      index = add_step(exec, std::move(step));
    }
    step_of[node] = index;
    exec->step_of[node->uid] = index;
    if (leaves != nullptr && node->dependents.empty()) leaves->push_back(index);
  }
  return true;
}

// Gives the steps of a graph's nodes back to a clone of it, for a capture of a launch.
void restore(CUgraphExec exec, CUgraph clone) {
  for (CUgraphNode node : clone->nodes) {
    if (node->child != nullptr) {
      restore(exec, node->child);
      continue;
    }
    // The clone was made from the source, and that from the graph whose nodes the steps are known by.
    const auto at = exec->step_of.find(node->cloned_from);
    if (at == exec->step_of.end()) continue;
    node->work = exec->steps[at->second].work;
    node->attributes = exec->steps[at->second].attributes;
    if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY) describe_copy(node);
    if (node->type == CU_GRAPH_NODE_TYPE_MEMSET) describe_set(node);
  }
}

CUgraph clone_keeping_origin(CUgraph graph) {
  std::unordered_map<CUgraphNode, CUgraphNode> mapping;
  CUgraph clone = clone_graph(graph, &mapping);
  for (const auto& [from, to] : mapping) to->cloned_from = from->cloned_from;
  return clone;
}

// The paths through a graph, for vector clocks: a node goes on with the path of its first predecessor, unless another
// already did.
void assign_chains(CUgraphExec exec) {
  Driver& d = driver();
  exec->chains.resize(exec->steps.size());
  std::vector<bool> continued(exec->steps.size());
  for (std::size_t i = 0; i < exec->steps.size(); ++i) {
    const auto& after = exec->steps[i].after;
    const auto free = std::find_if(after.begin(), after.end(), [&](std::uint32_t step) { return !continued[step]; });
    if (free != after.end()) {
      continued[*free] = true;
      exec->chains[i] = exec->chains[*free];
    } else {
      exec->chains[i] = d.tracking.new_chain();
    }
  }
}

// What an earlier launch left allocated is refused, or freed; and there has to be memory for this one.
CUresult check_memory(CUgraphExec exec, CUstream stream) {
  std::vector<GraphReserve::Change> changes;
  for (const Step& step : exec->steps) {
    if (!step.memory) continue;
    Block* const block = step.work.memory.block;
    changes.push_back({block, step.work.kind == WorkKind::kFree});
    if (changes.back().frees || !block->outstanding) continue;
    if ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0) return CUDA_ERROR_INVALID_VALUE;
    block->outstanding = false;
    driver().outstanding.erase(block);
  }
  if (changes.empty()) return CUDA_SUCCESS;
  return driver().graph_reserve.launch(stream->id, changes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

Step* step_of(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type) {
  if (!valid(exec) || !valid(node) || node->type != type) return nullptr;
  const auto at = exec->step_of.find(node->uid);
  return at != exec->step_of.end() ? &exec->steps[at->second] : nullptr;
}

// Changes a step as the same call would change a node.
template <typename Change>
CUresult change_step(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, Change change) {
  Step* step = step_of(exec, node, type);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode scratch = driver().nodes.make();
  scratch->type = type;
  scratch->work = step->work;
  const CUresult result = change(scratch);
  if (result == CUDA_SUCCESS) step->work = std::move(scratch->work);
  driver().nodes.release(scratch);
  return result;
}

}  // namespace

CUgraphExec instantiate(CUgraph graph, CUcontext context, unsigned long long flags, CUgraphNode* error_node,
                        CUresult& error) {
  Driver& d = driver();
  CUgraphExec exec = d.execs.make();
  exec->flags = flags;
  exec->context = context;
  if (!flatten(exec, graph, {}, nullptr)) {
    if (error_node != nullptr) *error_node = graph->nodes.front();
    d.execs.release(exec);
    error = CUDA_ERROR_INVALID_VALUE;
    return nullptr;
  }
  exec->source = clone_graph(graph);
  error = CUDA_SUCCESS;
  return exec;
}

void destroy_exec(CUgraphExec exec) {
  destroy_graph(exec->source);
  driver().execs.release(exec);
}

CUresult launch_graph(CUgraphExec exec, CUstream stream) {
  Driver& d = driver();
  if (const CUresult error = check_memory(exec, stream)) return error;
  ++d.counters.graph_launches;
  d.counters.graph_nodes += exec->steps.size();
  count_submission(d, nimble::graph_launch_us(d.clock.model(), exec->steps.size()));
  if (d.tracking.on() && exec->chains.size() != exec->steps.size()) assign_chains(exec);

  Op* begin = d.engine.make();
  begin->work = make_work(WorkKind::kEmpty, "cuGraphLaunch");
  d.engine.follow(begin, exec->tail);
  d.engine.submit(begin, stream);
  const Tail start = stream->tail;

  std::vector<Tail>& tails = exec->scratch;
  tails.resize(exec->steps.size());
  for (std::size_t i = 0; i < exec->steps.size(); ++i) {
    Step& step = exec->steps[i];
    Op* op = d.engine.make();
    if (step.enabled) {
      op->work = step.work;
    } else {
      op->work = make_work(WorkKind::kEmpty, step.work.name);
    }
    for (std::uint32_t before : step.after) d.engine.follow(op, tails[before]);
    if (step.after.empty()) d.engine.follow(op, start);
    if (step.work.kind == WorkKind::kEventWait && step.enabled && valid(step.work.event.event)) {
      d.engine.follow(op, step.work.event.event->tail);
    }
    if (step.memory != nullptr) {
      Block* block = step.work.memory.block;
      op->keeps = step.memory;
      block->outstanding = step.work.kind == WorkKind::kAlloc;
      if (block->outstanding) {
        d.memory.renew(block);
        d.outstanding[block] = step.memory;
      } else {
        d.outstanding.erase(block);
      }
    }
    d.engine.submit_unordered(op, stream->context, exec->chains.empty() ? 0 : exec->chains[i]);
    tails[i] = d.engine.tail_of(op);
    if (step.work.kind == WorkKind::kEventRecord && step.enabled && valid(step.work.event.event)) {
      record_event(step.work.event.event, tails[i]);
    }
  }

  Op* end = d.engine.make();
  end->work = make_work(WorkKind::kEmpty, "cuGraphLaunch");
  for (std::size_t i = 0; i < exec->steps.size(); ++i) {
    if (exec->steps[i].followers == 0) d.engine.follow(end, tails[i]);
  }
  d.engine.submit(end, stream);
  exec->tail = stream->tail;
  d.graph_reserve.launched(stream->id, exec->tail.last);
  return CUDA_SUCCESS;
}

}  // namespace simcuda

using namespace simcuda;

// --- Instantiation ---

static CUresult make_exec(Call& call, CUgraphExec* exec, CUgraph graph, unsigned long long flags,
                          CUgraphNode* error_node) {
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (exec == nullptr || !valid(graph) || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  CUgraphExec made = instantiate(graph, call.context, flags, error_node, error);
  if (made != nullptr) *exec = made;
  return error;
}

SIM_CALL(cuGraphInstantiateWithFlags, kContext, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
         (exec, graph, flags)) {
  return make_exec(call, exec, graph, flags, nullptr);
}

SIM_CALL(cuGraphInstantiate_v2, kContext,
         (CUgraphExec * exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes),
         (exec, graph, error_node, log, log_bytes)) {
  if (log != nullptr && log_bytes != 0) log[0] = '\0';
  if (error_node != nullptr) *error_node = nullptr;
  const CUresult result = make_exec(call, exec, graph, 0, error_node);
  if (result != CUDA_SUCCESS && log != nullptr && log_bytes != 0) {
    std::snprintf(log, log_bytes, "the graph cannot be instantiated");
  }
  return result;
}
SIM_ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2, kContext,
          (CUgraphExec * exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes),
          (exec, graph, error_node, log, log_bytes))

SIM_CALL_PTSZ(cuGraphInstantiateWithParams, kContext,
              (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params), (exec, graph, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  const CUresult result = make_exec(call, exec, graph, params->flags, &params->hErrNode_out);
  params->result_out = result == CUDA_SUCCESS            ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                       : params->hErrNode_out != nullptr ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                         : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

SIM_CALL(cuGraphExecGetFlags, kInit, (CUgraphExec exec, cuuint64_t* flags), (exec, flags)) {
  if (!valid(exec) || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

// Launches that are queued go on: each op holds all it needs.
SIM_CALL(cuGraphExecDestroy, kInit, (CUgraphExec exec), (exec)) {
  if (!valid(exec)) return CUDA_ERROR_INVALID_VALUE;
  destroy_exec(exec);
  return CUDA_SUCCESS;
}

// --- Launch ---

SIM_CALL_PTSZ(cuGraphLaunch, kContext, (CUgraphExec exec, CUstream handle), (exec, handle)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!valid(exec)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_stream(stream)) return error;
  if (!capturing(stream)) {
    for (const Step& step : exec->steps) {
      if (const CUresult error = refusal(call, step.work, true)) return error;
    }
    return launch_graph(exec, stream);
  }
  CUgraphNode node = nullptr;
  if (const CUresult error =
          capture_node(stream, CU_GRAPH_NODE_TYPE_GRAPH, make_work(WorkKind::kEmpty, "graph"), &node)) {
    return error;
  }
  node->child = clone_keeping_origin(exec->source);
  node->child->owner = node;
  restore(exec, node->child);
  return CUDA_SUCCESS;
}

// Nothing has to be brought to this device; only the place in the stream is kept.
SIM_CALL_PTSZ(cuGraphUpload, kContext, (CUgraphExec exec, CUstream handle), (exec, handle)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!valid(exec)) return CUDA_ERROR_INVALID_VALUE;
  if (capturing(stream)) {
    invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return submit(call, stream, CU_GRAPH_NODE_TYPE_EMPTY, make_work(WorkKind::kEmpty, "cuGraphUpload"));
}

// --- Changes ---

SIM_CALL(cuGraphExecKernelNodeSetParams, kInit,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params), (exec, node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_KERNEL,
                     [&](CUgraphNode scratch) { return set_kernel(scratch, widen(*params)); });
}
SIM_CALL(cuGraphExecKernelNodeSetParams_v2, kInit,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params), (exec, node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_KERNEL,
                     [&](CUgraphNode scratch) { return set_kernel(scratch, *params); });
}

SIM_CALL(cuGraphExecMemcpyNodeSetParams, kInit,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params, CUcontext context),
         (exec, node, params, context)) {
  if (params == nullptr || !valid(context)) return CUDA_ERROR_INVALID_VALUE;
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, [&](CUgraphNode scratch) {
    const Copy before = scratch->work.copy;
    if (const CUresult error = set_copy(scratch, *params)) return error;
    // As a real driver has it: neither the kind of memory nor the number of dimensions may change.
    const Copy& after = scratch->work.copy;
    const Memory& memory = driver().memory;
    const bool same = memory.on_device(before.source) == memory.on_device(after.source) &&
                      memory.on_device(before.destination) == memory.on_device(after.destination) &&
                      (before.height > 1 || before.depth > 1) == (after.height > 1 || after.depth > 1);
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_CALL(cuGraphExecMemsetNodeSetParams, kInit,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context),
         (exec, node, params, context)) {
  if (params == nullptr || !valid(context)) return CUDA_ERROR_INVALID_VALUE;
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, [&](CUgraphNode scratch) {
    const bool flat = scratch->work.set.height <= 1;
    if (const CUresult error = set_set(scratch, *params)) return error;
    return flat == (scratch->work.set.height <= 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_CALL(cuGraphExecHostNodeSetParams, kInit, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params),
         (exec, node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_HOST,
                     [&](CUgraphNode scratch) { return set_host(scratch, *params); });
}

// As a real driver has it (H200, 580.159): not once the event that the node has so far is destroyed.
static CUresult change_event(CUgraphNode scratch, CUevent event) {
  const auto& now = scratch->work.event;
  if (!valid(now.event) || now.event->id != now.id) return CUDA_ERROR_INVALID_VALUE;
  return set_event(scratch, event);
}

SIM_CALL(cuGraphExecEventRecordNodeSetEvent, kInit, (CUgraphExec exec, CUgraphNode node, CUevent event),
         (exec, node, event)) {
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                     [&](CUgraphNode scratch) { return change_event(scratch, event); });
}
SIM_CALL(cuGraphExecEventWaitNodeSetEvent, kInit, (CUgraphExec exec, CUgraphNode node, CUevent event),
         (exec, node, event)) {
  return change_step(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                     [&](CUgraphNode scratch) { return change_event(scratch, event); });
}

SIM_CALL(cuGraphExecNodeSetParams, kContext, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params),
         (exec, node, params)) {
  if (params == nullptr || !valid(node)) return CUDA_ERROR_INVALID_VALUE;
  return change_step(exec, node, node->type, [&](CUgraphNode scratch) { return set_any(scratch, *params); });
}

SIM_CALL(cuGraphNodeSetEnabled, kInit, (CUgraphExec exec, CUgraphNode node, unsigned enabled), (exec, node, enabled)) {
  if (!valid(node) || (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
                       node->type != CU_GRAPH_NODE_TYPE_MEMSET)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Step* step = step_of(exec, node, node->type);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  step->enabled = enabled != 0;
  return CUDA_SUCCESS;
}
SIM_CALL(cuGraphNodeGetEnabled, kInit, (CUgraphExec exec, CUgraphNode node, unsigned* enabled), (exec, node, enabled)) {
  Step* step = valid(node) ? step_of(exec, node, node->type) : nullptr;
  if (step == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = step->enabled;
  return CUDA_SUCCESS;
}

// A whole graph's parameters at once. The shape must be the same: as many nodes, of the same types, added in the same
// order with the same edges.
static CUresult update(Call& call, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo& info) {
  info = {};
  info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  if (!valid(exec) || !valid(graph)) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec fresh = call.driver.execs.make();
  std::unordered_map<std::uint64_t, CUgraphNode> nodes;
  for (CUgraphNode node : graph->nodes) nodes[node->uid] = node;
  info.result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  if (!flatten(fresh, graph, {}, nullptr) || fresh->steps.size() != exec->steps.size()) {
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  for (std::size_t i = 0; i < exec->steps.size() && info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS; ++i) {
    const Step &before = exec->steps[i], &after = fresh->steps[i];
    std::vector<std::uint32_t> old_edges = before.after, new_edges = after.after;
    std::sort(old_edges.begin(), old_edges.end());
    std::sort(new_edges.begin(), new_edges.end());
    if (old_edges != new_edges) {
      info.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    } else if (before.type != after.type) {
      info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    } else if (after.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && before.memory != after.memory) {
      info.result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    } else if (after.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      const Memory& memory = call.driver.memory;
      const Copy &from = before.work.copy, &to = after.work.copy;
      if (memory.on_device(from.source) != memory.on_device(to.source) ||
          memory.on_device(from.destination) != memory.on_device(to.destination)) {
        info.result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      }
    }
    if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      const auto at = nodes.find(after.node_uid);
      info.errorNode = at != nodes.end() ? at->second : nullptr;
    }
  }
  if (info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    for (std::size_t i = 0; i < exec->steps.size(); ++i) {
      exec->steps[i].work = fresh->steps[i].work;
      exec->steps[i].attributes = fresh->steps[i].attributes;
    }
  }
  call.driver.execs.release(fresh);
  return info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

SIM_CALL(cuGraphExecUpdate_v2, kInit, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
         (exec, graph, info)) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return update(call, exec, graph, *info);
}
SIM_CALL(cuGraphExecUpdate, kInit,
         (CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* result),
         (exec, graph, error_node, result)) {
  CUgraphExecUpdateResultInfo info;
  const CUresult error = update(call, exec, graph, info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return error;
}
