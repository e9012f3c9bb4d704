// See graph_nodes.h.
#include "tests/simcuda/graph/graph_nodes.h"

#include <algorithm>
#include <cstring>

#include "tests/simcuda/engine/launch.h"
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"
#include "tests/simcuda/memory/copy.h"

namespace simcuda {

CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS wide{};
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, kern) >= sizeof params);
  std::memcpy(&wide, &params, sizeof params);
  return wide;
}

CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params) {
  const CUfunction function = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  CUcontext context = params.ctx != nullptr ? params.ctx : current_context();
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  Work work;
  if (const CUresult error = fill_launch(work, function, context, {params.gridDimX, params.gridDimY, params.gridDimZ},
                                         {params.blockDimX, params.blockDimY, params.blockDimZ}, params.sharedMemBytes,
                                         params.kernelParams, params.extra)) {
    return error;
  }
  node->work = std::move(work);
  node->context = context;
  return CUDA_SUCCESS;
}

CUresult set_copy(CUgraphNode node, const CUDA_MEMCPY3D& params) {
  Copy copy;
  if (const CUresult error = box_copy(params, copy)) return error;
  if (copy.width == 0 || copy.height == 0 || copy.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  node->work.copy = copy;
  node->copy = params;
  return CUDA_SUCCESS;
}

CUresult set_set(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS& params) {
  const unsigned element = params.elementSize;
  if ((element != 1 && element != 2 && element != 4) || params.width == 0 || params.height == 0 ||
      params.dst % element != 0 || (params.height > 1 && params.pitch < params.width * element)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  node->work.set = {params.dst,    params.width,
                    params.height, params.height > 1 ? params.pitch : params.width * element,
                    params.value,  element};
  node->set = params;
  return CUDA_SUCCESS;
}

CUresult set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS& params) {
  if (params.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->work.host = {params.fn, nullptr, nullptr, params.userData};
  return CUDA_SUCCESS;
}

CUresult set_event(CUgraphNode node, CUevent event) {
  if (!valid(event)) return CUDA_ERROR_INVALID_VALUE;
  node->work.event = {event, true, event->id};
  return CUDA_SUCCESS;
}

CUresult set_any(CUgraphNode node, const CUgraphNodeParams& params) {
  if (params.type != node->type) return CUDA_ERROR_INVALID_VALUE;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel;
      static_assert(sizeof kernel == sizeof params.kernel);
      std::memcpy(&kernel, &params.kernel, sizeof kernel);
      return set_kernel(node, kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return set_copy(node, params.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& set = params.memset;
      return set_set(node, {set.dst, set.pitch, set.value, set.elementSize, set.width, set.height});
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return set_host(node, {params.host.fn, params.host.userData});
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return set_event(node, params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return set_event(node, params.eventWait.event);
    default:
      return not_supported("parameters of a graph node of this type");
  }
}

void describe_copy(CUgraphNode node) {
  const Copy& copy = node->work.copy;
  const auto type_of = [](std::uint64_t address) {
    const Block* block = driver().memory.find(address);
    const bool device = block != nullptr ? !block->on_host() : driver().memory.on_device(address);
    return device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  };
  CUDA_MEMCPY3D& d = node->copy;
  d = {};
  d.srcMemoryType = type_of(copy.source);
  d.dstMemoryType = type_of(copy.destination);
  if (d.srcMemoryType == CU_MEMORYTYPE_HOST) {
    d.srcHost = reinterpret_cast<const void*>(copy.source);
  } else {
    d.srcDevice = copy.source;
  }
  if (d.dstMemoryType == CU_MEMORYTYPE_HOST) {
    d.dstHost = reinterpret_cast<void*>(copy.destination);
  } else {
    d.dstDevice = copy.destination;
  }
  d.srcPitch = copy.source_pitch;
  d.dstPitch = copy.destination_pitch;
  d.srcHeight = copy.source_slice / std::max<std::size_t>(copy.source_pitch, 1);
  d.dstHeight = copy.destination_slice / std::max<std::size_t>(copy.destination_pitch, 1);
  d.WidthInBytes = copy.width;
  d.Height = copy.height;
  d.Depth = copy.depth;
}

void describe_set(CUgraphNode node) {
  const Set& set = node->work.set;
  node->set = {set.destination, set.height > 1 ? set.pitch : 0, set.value, set.element_bytes, set.width, set.height};
}

}  // namespace simcuda
