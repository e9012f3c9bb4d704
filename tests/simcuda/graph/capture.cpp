// See capture.h. The rules, and the error for each violation, are those that the API documents for stream capture.
#include "tests/simcuda/graph/capture.h"

#include <algorithm>

#include "tests/simcuda/engine/submit.h"

namespace simcuda {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Lets go of all streams. The graph is the caller's to keep or destroy.
void end(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  std::erase(capture->origin->context->captures, capture);
  for (CUstream stream : capture->streams) {
    stream->capture.reset();
    stream->capture_tail.clear();
  }
  capture->streams.clear();
  capture->graph->capturing_into = false;
}

void discard_graph(const std::shared_ptr<Capture>& capture) {
  if (capture->own_graph) destroy_graph(capture->graph);
  capture->graph = nullptr;
}

// Whether all that was captured comes before the end of the origin.
bool joined(const Capture& capture) {
  std::vector<CUgraphNode> reached = capture.origin->capture_tail;
  std::unordered_map<CUgraphNode, bool> seen;
  while (!reached.empty()) {
    CUgraphNode node = reached.back();
    reached.pop_back();
    if (!seen.emplace(node, true).second) continue;
    for (const Edge& edge : node->dependencies) reached.push_back(edge.node);
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](CUstream stream) {
    return std::all_of(stream->capture_tail.begin(), stream->capture_tail.end(),
                       [&](CUgraphNode node) { return seen.count(node) != 0; });
  });
}

CUresult begin(Call& call, CUstream handle, CUstreamCaptureMode mode, CUgraph graph,
               std::vector<CUgraphNode> dependencies) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
      mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = call.driver.next_capture_id++;
  capture->own_graph = graph == nullptr;
  capture->graph = graph != nullptr ? graph : call.driver.graphs.make();
  capture->graph->capturing_into = true;
  capture->origin = stream;
  capture->streams.push_back(stream);
  capture->mode = mode;
  capture->thread = thread_number();
  stream->context->captures.push_back(capture);
  stream->capture = std::move(capture);
  stream->capture_tail = std::move(dependencies);
  return CUDA_SUCCESS;
}

void add_missing(std::vector<CUgraphNode>& to, const std::vector<CUgraphNode>& nodes) {
  for (CUgraphNode node : nodes) {
    if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
  }
}

}  // namespace

void invalidate(const std::shared_ptr<Capture>& capture) { capture->invalid = true; }

void abandon_capture(CUstream stream) {
  if (!capturing(stream)) return;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin == stream) {
    end(capture);
    discard_graph(capture);
  } else {
    capture->invalid = true;
    std::erase(capture->streams, stream);
    stream->capture.reset();
    stream->capture_tail.clear();
  }
}

CUresult check_stream(CUstream stream) {
  if (capturing(stream)) return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (!stream->legacy || stream->context->captures.empty()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : stream->context->captures) {
    const bool blocking = std::any_of(capture->streams.begin(), capture->streams.end(),
                                      [](CUstream captured) { return captured->blocking; });
    if (!blocking) continue;
    invalidate(capture);
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

CUresult forbid_while_capturing(Call& call) {
  if (call.context->captures.empty() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : call.context->captures) {
    const bool forbidden = capture->thread == thread_number() ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                                              : thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                                                    capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbidden) continue;
    invalidate(capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult forbid_in_context(CUcontext context) {
  for (const auto& capture : context->captures) invalidate(capture);
  return context->captures.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult forbid_question(CUstream stream) {
  if (!capturing(stream)) return check_stream(stream);
  invalidate(stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult forbid_wait_for(Call& call, CUstream stream) {
  if (capturing(stream)) {
    invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult error = check_stream(stream)) return error;
  return forbid_while_capturing(call);
}

CUresult capture_node(CUstream stream, CUgraphNodeType type, Work&& work, CUgraphNode* added) {
  const std::shared_ptr<Capture>& capture = stream->capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<Edge> edges;
  for (CUgraphNode node : stream->capture_tail) edges.push_back({node, {}});
  CUgraphNode node = add_node(capture->graph, type, std::move(work), edges);
  node->context = stream->context;
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY) describe_copy(node);
  if (type == CU_GRAPH_NODE_TYPE_MEMSET) describe_set(node);
  stream->capture_tail.assign(1, node);
  if (added != nullptr) *added = node;
  return CUDA_SUCCESS;
}

CUresult capture_allocation(CUstream stream, std::uint64_t bytes, const CUmemPoolProps& props, CUdeviceptr* pointer) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  auto memory = std::make_shared<GraphMemory>(bytes, stream->context);
  if (memory->block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Work work = make_work(WorkKind::kAlloc, "cuMemAllocAsync");
  work.memory = {memory->block, bytes};
  CUgraphNode node = nullptr;
  if (const CUresult error = capture_node(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, std::move(work), &node)) return error;
  node->memory = std::move(memory);
  node->pool_props = props;
  *pointer = node->memory->block->base;
  return CUDA_SUCCESS;
}

CUresult join_capture(CUstream stream, CUevent event) {
  if (event->capture == nullptr) {  // of the world outside, which a capture may not depend on
    invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event->capture->ended) return CUDA_ERROR_CAPTURED_EVENT;
  if (capturing(stream)) {
    if (stream->capture != event->capture) {
      invalidate(stream->capture);
      invalidate(event->capture);
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    add_missing(stream->capture_tail, event->capture_tail);
    return CUDA_SUCCESS;
  }
  if (stream->legacy) {
    invalidate(event->capture);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (event->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream->capture = event->capture;
  stream->capture->streams.push_back(stream);
  stream->capture_tail = event->capture_tail;
  return CUDA_SUCCESS;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL_PTSZ(cuStreamBeginCapture_v2, kContext, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) {
  return begin(call, stream, mode, nullptr, {});
}
SIM_CALL_PTSZ(cuStreamBeginCapture, kContext, (CUstream stream), (stream)) {
  return begin(call, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}

SIM_CALL_PTSZ(cuStreamBeginCaptureToGraph, kContext,
              (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
               size_t count, CUstreamCaptureMode mode),
              (stream, graph, dependencies, data, count, mode)) {
  if (!valid(graph) || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (!valid(dependencies[i]) || dependencies[i]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  }
  return begin(call, stream, mode, graph, {dependencies, dependencies + count});
}

SIM_CALL_PTSZ(cuStreamEndCapture, kContext, (CUstream handle, CUgraph* graph), (handle, graph)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  if (!capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->thread != thread_number() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const CUresult result = capture->invalid    ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : !joined(*capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                              : CUDA_SUCCESS;
  end(capture);
  if (result != CUDA_SUCCESS) {
    discard_graph(capture);
  } else {
    *graph = capture->graph;
  }
  return result;
}

static CUresult capture_info(Call& call, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                             const CUgraphNode** dependencies, const CUgraphEdgeData** data, std::size_t* count) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) {
    // Cannot be answered while a stream that it synchronises with captures; asking does no harm.
    for (const auto& capture : stream->context->captures) {
      for (CUstream other : capture->streams) {
        if (other->blocking) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  if (!capturing(stream)) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  Capture& capture = *stream->capture;
  *status = capture.invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture.invalid) return CUDA_SUCCESS;  // all else is valid of active ones alone
  if (id != nullptr) *id = capture.id;
  if (graph != nullptr) *graph = capture.graph;
  if (dependencies != nullptr) *dependencies = stream->capture_tail.data();
  if (count != nullptr) *count = stream->capture_tail.size();
  if (data != nullptr) {
    capture.edge_data.assign(stream->capture_tail.size(), CUgraphEdgeData{});
    *data = capture.edge_data.data();
  }
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamIsCapturing, kContext, (CUstream stream, CUstreamCaptureStatus* status), (stream, status)) {
  return capture_info(call, stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
SIM_CALL_PTSZ(cuStreamGetCaptureInfo, kContext, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
              (stream, status, id)) {
  return capture_info(call, stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
SIM_CALL_PTSZ(cuStreamGetCaptureInfo_v2, kContext,
              (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
               const CUgraphNode** dependencies, size_t* count),
              (stream, status, id, graph, dependencies, count)) {
  return capture_info(call, stream, status, id, graph, dependencies, nullptr, count);
}
SIM_CALL_PTSZ(cuStreamGetCaptureInfo_v3, kContext,
              (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
               const CUgraphNode** dependencies, const CUgraphEdgeData** data, size_t* count),
              (stream, status, id, graph, dependencies, data, count)) {
  return capture_info(call, stream, status, id, graph, dependencies, data, count);
}

static CUresult update_dependencies(Call& call, CUstream handle, CUgraphNode* dependencies, std::size_t count,
                                    unsigned flags) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if ((count != 0 && dependencies == nullptr) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!valid(dependencies[i]) || dependencies[i]->graph != stream->capture->graph) return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  add_missing(stream->capture_tail, {dependencies, dependencies + count});
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamUpdateCaptureDependencies, kContext,
              (CUstream stream, CUgraphNode* dependencies, size_t count, unsigned flags),
              (stream, dependencies, count, flags)) {
  return update_dependencies(call, stream, dependencies, count, flags);
}
SIM_CALL_PTSZ(cuStreamUpdateCaptureDependencies_v2, kContext,
              (CUstream stream, CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count, unsigned flags),
              (stream, dependencies, data, count, flags)) {
  return update_dependencies(call, stream, dependencies, count, flags);
}

SIM_CALL(cuThreadExchangeStreamCaptureMode, kInit, (CUstreamCaptureMode * mode), (mode)) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}
