// Hints about managed memory in stream order. Memory of this device is where it is, so all that such a call does here
// is to check its arguments and to take its place in the stream.
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

using namespace simcuda;

static CUresult hint(Call& call, CUdeviceptr pointer, std::size_t bytes, CUstream handle, const char* name) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Block* block = call.driver.memory.find_allocated(pointer);
  if (block == nullptr || block->kind != BlockKind::kManaged || bytes > block->base + block->bytes - pointer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (capturing(stream)) {
    invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return submit(call, stream, CU_GRAPH_NODE_TYPE_EMPTY, make_work(WorkKind::kEmpty, name));
}

SIM_CALL_PTSZ(cuMemPrefetchAsync, kContext, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
              (pointer, bytes, device, stream)) {
  if (device != 0 && device != CU_DEVICE_CPU) return CUDA_ERROR_INVALID_DEVICE;
  return hint(call, pointer, bytes, stream, "cuMemPrefetchAsync");
}

SIM_CALL_PTSZ(cuMemPrefetchAsync_v2, kContext,
              (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
              (pointer, bytes, location, flags, stream)) {
  if (flags != 0 || location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  return hint(call, pointer, bytes, stream, "cuMemPrefetchAsync");
}

SIM_CALL_PTSZ(cuStreamAttachMemAsync, kContext, (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags),
              (stream, pointer, bytes, flags)) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return hint(call, pointer, bytes, stream, "cuStreamAttachMemAsync");
}

static CUresult hints(Call& call, const CUdeviceptr* pointers, const std::size_t* sizes, std::size_t count,
                      unsigned long long flags, CUstream stream, const char* name) {
  if (pointers == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (const CUresult error = hint(call, pointers[i], sizes[i], stream, name)) return error;
  }
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuMemPrefetchBatchAsync, kContext,
              (CUdeviceptr * pointers, size_t* sizes, size_t count, CUmemLocation* locations, size_t* first_at,
               size_t location_count, unsigned long long flags, CUstream stream),
              (pointers, sizes, count, locations, first_at, location_count, flags, stream)) {
  if (locations == nullptr || first_at == nullptr || location_count == 0) return CUDA_ERROR_INVALID_VALUE;
  return hints(call, pointers, sizes, count, flags, stream, "cuMemPrefetchBatchAsync");
}
// What is discarded may be anything afterwards; here it stays.
SIM_CALL_PTSZ(cuMemDiscardBatchAsync, kContext,
              (CUdeviceptr * pointers, size_t* sizes, size_t count, unsigned long long flags, CUstream stream),
              (pointers, sizes, count, flags, stream)) {
  return hints(call, pointers, sizes, count, flags, stream, "cuMemDiscardBatchAsync");
}
SIM_CALL_PTSZ(cuMemDiscardAndPrefetchBatchAsync, kContext,
              (CUdeviceptr * pointers, size_t* sizes, size_t count, CUmemLocation* locations, size_t* first_at,
               size_t location_count, unsigned long long flags, CUstream stream),
              (pointers, sizes, count, locations, first_at, location_count, flags, stream)) {
  if (locations == nullptr || first_at == nullptr || location_count == 0) return CUDA_ERROR_INVALID_VALUE;
  return hints(call, pointers, sizes, count, flags, stream, "cuMemDiscardAndPrefetchBatchAsync");
}
