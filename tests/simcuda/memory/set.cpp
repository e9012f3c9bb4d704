// Sets. Even the forms without a stream return at once, unless they set pinned host memory, by the rules of the API.
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

using namespace simcuda;

namespace {

CUresult set(Call& call, CUstream handle, const char* name, CUdeviceptr to, std::size_t pitch, std::uint32_t value,
             std::uint32_t element_bytes, std::size_t width, std::size_t height, bool synchronous) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (to % element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < width * element_bytes || pitch % element_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (synchronous) {
    if (const CUresult error = check_stream(stream)) return error;
  }
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  // No memory that a device could touch: a real driver says so at once.
  if (!call.driver.memory.on_device(to) && call.driver.memory.find(to) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work = make_work(WorkKind::kSet, name);
  work.set = {to, width, height, height > 1 ? pitch : width * element_bytes, value, element_bytes};
  const Block* block = call.driver.memory.find(to);
  const bool wait = synchronous && ((block != nullptr && (block->on_host() || block->synchronous_copies)) ||
                                    (call.context->flags & CU_CTX_SYNC_MEMOPS) != 0);
  if (const CUresult error = submit(call, stream, CU_GRAPH_NODE_TYPE_MEMSET, std::move(work))) return error;
  return wait ? wait_for(call, Tail(stream->tail), call.context) : CUDA_SUCCESS;
}

}  // namespace

#define SIM_SETS(bits, type)                                                                                      \
  SIM_CALL_PTDS(cuMemsetD##bits##_v2, kContext, (CUdeviceptr to, type value, size_t count), (to, value, count)) { \
    return set(call, nullptr, "cuMemsetD" #bits, to, 0, value, bits / 8, count, 1, true);                         \
  }                                                                                                               \
  SIM_CALL_PTSZ(cuMemsetD##bits##Async, kContext, (CUdeviceptr to, type value, size_t count, CUstream stream),    \
                (to, value, count, stream)) {                                                                     \
    return set(call, stream, "cuMemsetD" #bits "Async", to, 0, value, bits / 8, count, 1, false);                 \
  }                                                                                                               \
  SIM_CALL_PTDS(cuMemsetD2D##bits##_v2, kContext,                                                                 \
                (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),                          \
                (to, pitch, value, width, height)) {                                                              \
    return set(call, nullptr, "cuMemsetD2D" #bits, to, pitch, value, bits / 8, width, height, true);              \
  }                                                                                                               \
  SIM_CALL_PTSZ(cuMemsetD2D##bits##Async, kContext,                                                               \
                (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),         \
                (to, pitch, value, width, height, stream)) {                                                      \
    return set(call, stream, "cuMemsetD2D" #bits "Async", to, pitch, value, bits / 8, width, height, false);      \
  }

SIM_SETS(8, unsigned char)
SIM_SETS(16, unsigned short)
SIM_SETS(32, unsigned)
