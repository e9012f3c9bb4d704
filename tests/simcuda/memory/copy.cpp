// Copies. The rules about the host are those of the real driver: the source of a copy from pageable memory is read
// before the call returns, one from pinned memory when the copy runs; a copy to pageable memory, or from host to host,
// is over when the call returns; the synchronous forms wait where the real ones wait, and not where they do not.
#include "tests/simcuda/memory/copy.h"

#include <cstring>

#include "tests/simcuda/engine/execute.h"
#include "tests/simcuda/engine/op_failure.h"
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

namespace simcuda {
namespace {

bool pageable(Driver& d, std::uint64_t address) {
  return !d.memory.on_device(address) && d.memory.find(address) == nullptr;
}

bool on_host(Driver& d, std::uint64_t address) {
  const Block* block = d.memory.find(address);
  return block != nullptr ? block->on_host() : !d.memory.on_device(address);
}

// Not an address of any memory that the device could touch: what a real driver refuses at once. An address that once
// was, or will be, good is found out when the copy runs.
bool nonsense(Driver& d, std::uint64_t address, bool may_be_host) { return !may_be_host && pageable(d, address); }

bool wants_synchronous(Driver& d, std::uint64_t address) {
  const Block* block = d.memory.find(address);
  return block != nullptr && block->synchronous_copies;
}

// Reads the source now, into the op's own buffer, without gaps.
void stage(Op* op) {
  Copy& copy = op->work.copy;
  op->staging.resize(copy.width * copy.height * copy.depth);
  std::byte* to = op->staging.data();
  for (std::size_t z = 0; z < copy.depth; ++z) {
    for (std::size_t y = 0; y < copy.height; ++y, to += copy.width) {
      std::memcpy(to, reinterpret_cast<const std::byte*>(copy.source + z * copy.source_slice + y * copy.source_pitch),
                  copy.width);
    }
  }
  copy.staged = true;
  copy.source_pitch = copy.width;
  copy.source_slice = copy.width * copy.height;
}

// One side of a 2D or 3D copy: where it begins, and the distances in it. False where the descriptor is wrong.
struct Side {
  std::uint64_t address = 0;
  std::size_t pitch = 0, slice = 0;
  bool host = false;
};

CUresult side_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t z,
                 std::size_t pitch, std::size_t slice_rows, std::size_t width, std::size_t height, std::size_t depth,
                 Side& side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      side.address = reinterpret_cast<std::uint64_t>(host);
      side.host = true;
      break;
    case CU_MEMORYTYPE_DEVICE:
      side.address = device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side.address = device;
      side.host = true;
      break;
    case CU_MEMORYTYPE_ARRAY:
      return not_supported("a copy of an array");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  // With only one row or slice, the distance to the next does not matter.
  if (height <= 1 && depth <= 1 && y == 0 && z == 0 && pitch < x + width) pitch = x + width;
  if (pitch < x + width) return CUDA_ERROR_INVALID_VALUE;
  if (depth <= 1 && z == 0 && slice_rows < y + height) slice_rows = y + height;
  if (slice_rows < y + height) return CUDA_ERROR_INVALID_VALUE;
  side.pitch = pitch;
  side.slice = pitch * slice_rows;
  side.address += z * side.slice + y * pitch + x;
  return CUDA_SUCCESS;
}

CUresult linear(Call& call, CUstream handle, const char* name, std::uint64_t to, std::uint64_t from, std::size_t bytes,
                bool to_may_be_host, bool from_may_be_host, bool synchronous) {
  Copy copy = linear_copy(to, from, bytes);
  copy.host_destination = to_may_be_host;
  copy.host_source = from_may_be_host;
  return submit_copy(call, handle, copy, name, synchronous);
}

CUresult box(Call& call, CUstream handle, const char* name, const CUDA_MEMCPY3D* description, bool synchronous) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  if (const CUresult error = box_copy(*description, copy)) return error;
  return submit_copy(call, handle, copy, name, synchronous);
}

CUDA_MEMCPY3D widen(const CUDA_MEMCPY2D& flat) {
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = flat.srcXInBytes;
  box.srcY = flat.srcY;
  box.srcMemoryType = flat.srcMemoryType;
  box.srcHost = flat.srcHost;
  box.srcDevice = flat.srcDevice;
  box.srcPitch = flat.srcPitch;
  box.dstXInBytes = flat.dstXInBytes;
  box.dstY = flat.dstY;
  box.dstMemoryType = flat.dstMemoryType;
  box.dstHost = flat.dstHost;
  box.dstDevice = flat.dstDevice;
  box.dstPitch = flat.dstPitch;
  box.WidthInBytes = flat.WidthInBytes;
  box.Height = flat.Height;
  box.Depth = 1;
  return box;
}

CUresult flat(Call& call, CUstream handle, const char* name, const CUDA_MEMCPY2D* description, bool synchronous) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D wide = widen(*description);
  return box(call, handle, name, &wide, synchronous);
}

CUresult peer_box(Call& call, CUstream handle, const char* name, const CUDA_MEMCPY3D_PEER* peer, bool synchronous) {
  if (peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (CUcontext context : {peer->srcContext, peer->dstContext}) {
    if (context != nullptr && !valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  }
  static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER));
  CUDA_MEMCPY3D plain;
  std::memcpy(&plain, peer, sizeof plain);  // the same, with contexts where the other has reserved fields
  plain.reserved0 = plain.reserved1 = nullptr;
  return box(call, handle, name, &plain, synchronous);
}

CUresult batch(Call& call, CUstream handle, const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* sizes,
               std::size_t count, const CUmemcpyAttributes* attributes, const std::size_t* first_with,
               std::size_t attribute_count, std::size_t* failed) {
  if (failed != nullptr) *failed = SIZE_MAX;
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0 || attributes == nullptr ||
      first_with == nullptr || attribute_count == 0 || attribute_count > count || first_with[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (const CUresult error =
            linear(call, handle, "cuMemcpyBatchAsync", to[i], from[i], sizes[i], true, true, false)) {
      if (failed != nullptr) *failed = i;
      return error;
    }
  }
  return CUDA_SUCCESS;
}

// A pointer of a batch of boxes: lengths of 0 mean no gaps.
bool operand_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent, Side& side) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return false;
  const auto& pointer = operand.op.ptr;
  side.pitch = pointer.rowLength != 0 ? pointer.rowLength : extent.width;
  const std::size_t rows = pointer.layerHeight != 0 ? pointer.layerHeight : extent.height;
  if (side.pitch < extent.width || rows < extent.height) return false;
  side.slice = side.pitch * rows;
  side.address = pointer.ptr;
  side.host = true;
  return true;
}

CUresult box_batch(Call& call, CUstream handle, std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops,
                   std::size_t* failed, unsigned long long flags) {
  if (failed != nullptr) *failed = SIZE_MAX;
  if (count == 0 || ops == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUextent3D& extent = ops[i].extent;
    Side to, from;
    CUresult error = CUDA_SUCCESS;
    if (ops[i].src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY || ops[i].dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
      error = not_supported("a copy of an array");
    } else if (extent.width == 0 || extent.height == 0 || extent.depth == 0 ||
               ops[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID || !operand_of(ops[i].dst, extent, to) ||
               !operand_of(ops[i].src, extent, from)) {
      error = CUDA_ERROR_INVALID_VALUE;
    } else {
      Copy copy{};
      copy.destination = to.address;
      copy.source = from.address;
      copy.width = extent.width;
      copy.height = extent.height;
      copy.depth = extent.depth;
      copy.destination_pitch = to.pitch;
      copy.source_pitch = from.pitch;
      copy.destination_slice = to.slice;
      copy.source_slice = from.slice;
      copy.host_destination = copy.host_source = true;
      error = submit_copy(call, handle, copy, "cuMemcpy3DBatchAsync", false);
    }
    if (error == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return error;
  }
  return CUDA_SUCCESS;
}

}  // namespace

Copy linear_copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  Copy copy{};
  copy.destination = to;
  copy.source = from;
  copy.width = copy.destination_pitch = copy.source_pitch = copy.destination_slice = copy.source_slice = bytes;
  copy.height = copy.depth = 1;
  return copy;
}

CUresult box_copy(const CUDA_MEMCPY3D& d, Copy& copy) {
  Side to, from;
  if (const CUresult error = side_of(d.srcMemoryType, d.srcHost, d.srcDevice, d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch,
                                     d.srcHeight, d.WidthInBytes, d.Height, d.Depth, from)) {
    return error;
  }
  if (const CUresult error = side_of(d.dstMemoryType, d.dstHost, d.dstDevice, d.dstXInBytes, d.dstY, d.dstZ, d.dstPitch,
                                     d.dstHeight, d.WidthInBytes, d.Height, d.Depth, to)) {
    return error;
  }
  copy = {};
  copy.destination = to.address;
  copy.source = from.address;
  copy.width = d.WidthInBytes;
  copy.height = d.Height;
  copy.depth = d.Depth;
  copy.destination_pitch = to.pitch;
  copy.source_pitch = from.pitch;
  copy.destination_slice = to.slice;
  copy.source_slice = from.slice;
  copy.host_destination = to.host;
  copy.host_source = from.host;
  return CUDA_SUCCESS;
}

CUresult submit_copy(Call& call, CUstream handle, const Copy& copy, const char* name, bool synchronous) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = check_stream(stream)) return error;
  if (copy.width == 0 || copy.height == 0 || copy.depth == 0) return CUDA_SUCCESS;
  Driver& d = call.driver;
  if (nonsense(d, copy.destination, copy.host_destination) || nonsense(d, copy.source, copy.host_source)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (capturing(stream)) {
    Work work = make_work(WorkKind::kCopy, name);
    work.copy = copy;
    return capture_node(stream, CU_GRAPH_NODE_TYPE_MEMCPY, std::move(work));
  }

  const bool from_pageable = copy.host_source && pageable(d, copy.source);
  const bool to_host = on_host(d, copy.destination), from_host = on_host(d, copy.source);
  const bool to_pageable = copy.host_destination && pageable(d, copy.destination);
  // A synchronous copy from pageable memory waits for what was there before, and not for itself.
  if (synchronous && from_pageable && !to_host) {
    if (const CUresult error = wait_for(call, stream)) return error;
  }
  const bool wait = (to_host && from_host) || to_pageable ||
                    (synchronous && (to_host || (from_host && !from_pageable))) ||
                    (synchronous && ((call.context->flags & CU_CTX_SYNC_MEMOPS) != 0 ||
                                     wants_synchronous(d, copy.destination) || wants_synchronous(d, copy.source)));

  Op* op = d.engine.make();
  op->work = make_work(WorkKind::kCopy, name);
  op->work.copy = copy;
  if (const CUresult error = refusal(call, op->work, false)) {
    d.engine.drop(op);
    return error;
  }
  if (from_pageable && !to_host) stage(op);
  account(d, WorkKind::kCopy);
  d.engine.submit(op, stream);
  return wait ? wait_for(call, Tail(stream->tail), call.context) : CUDA_SUCCESS;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL_PTDS(cuMemcpy, kContext, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return linear(call, nullptr, "cuMemcpy", to, from, bytes, true, true, true);
}
SIM_CALL_PTSZ(cuMemcpyAsync, kContext, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
              (to, from, bytes, stream)) {
  return linear(call, stream, "cuMemcpyAsync", to, from, bytes, true, true, false);
}

SIM_CALL_PTDS(cuMemcpyHtoD_v2, kContext, (CUdeviceptr to, const void* from, size_t bytes), (to, from, bytes)) {
  return linear(call, nullptr, "cuMemcpyHtoD", to, reinterpret_cast<std::uint64_t>(from), bytes, false, true, true);
}
SIM_CALL_PTSZ(cuMemcpyHtoDAsync_v2, kContext, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
              (to, from, bytes, stream)) {
  return linear(call, stream, "cuMemcpyHtoDAsync", to, reinterpret_cast<std::uint64_t>(from), bytes, false, true,
                false);
}

SIM_CALL_PTDS(cuMemcpyDtoH_v2, kContext, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return linear(call, nullptr, "cuMemcpyDtoH", reinterpret_cast<std::uint64_t>(to), from, bytes, true, false, true);
}
SIM_CALL_PTSZ(cuMemcpyDtoHAsync_v2, kContext, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
              (to, from, bytes, stream)) {
  return linear(call, stream, "cuMemcpyDtoHAsync", reinterpret_cast<std::uint64_t>(to), from, bytes, true, false,
                false);
}

SIM_CALL_PTDS(cuMemcpyDtoD_v2, kContext, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return linear(call, nullptr, "cuMemcpyDtoD", to, from, bytes, false, false, true);
}
SIM_CALL_PTSZ(cuMemcpyDtoDAsync_v2, kContext, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
              (to, from, bytes, stream)) {
  return linear(call, stream, "cuMemcpyDtoDAsync", to, from, bytes, false, false, false);
}

SIM_CALL_PTDS(cuMemcpyPeer, kContext,
              (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
              (to, to_context, from, from_context, bytes)) {
  if (!valid(to_context) || !valid(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return linear(call, nullptr, "cuMemcpyPeer", to, from, bytes, false, false, true);
}
SIM_CALL_PTSZ(cuMemcpyPeerAsync, kContext,
              (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
               CUstream stream),
              (to, to_context, from, from_context, bytes, stream)) {
  if (!valid(to_context) || !valid(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return linear(call, stream, "cuMemcpyPeerAsync", to, from, bytes, false, false, false);
}

SIM_CALL_PTDS(cuMemcpy2D_v2, kContext, (const CUDA_MEMCPY2D* copy), (copy)) {
  return flat(call, nullptr, "cuMemcpy2D", copy, true);
}
SIM_CALL_PTDS(cuMemcpy2DUnaligned_v2, kContext, (const CUDA_MEMCPY2D* copy), (copy)) {
  return flat(call, nullptr, "cuMemcpy2DUnaligned", copy, true);
}
SIM_CALL_PTSZ(cuMemcpy2DAsync_v2, kContext, (const CUDA_MEMCPY2D* copy, CUstream stream), (copy, stream)) {
  return flat(call, stream, "cuMemcpy2DAsync", copy, false);
}

SIM_CALL_PTDS(cuMemcpy3D_v2, kContext, (const CUDA_MEMCPY3D* copy), (copy)) {
  return box(call, nullptr, "cuMemcpy3D", copy, true);
}
SIM_CALL_PTSZ(cuMemcpy3DAsync_v2, kContext, (const CUDA_MEMCPY3D* copy, CUstream stream), (copy, stream)) {
  return box(call, stream, "cuMemcpy3DAsync", copy, false);
}
SIM_CALL_PTDS(cuMemcpy3DPeer, kContext, (const CUDA_MEMCPY3D_PEER* copy), (copy)) {
  return peer_box(call, nullptr, "cuMemcpy3DPeer", copy, true);
}
SIM_CALL_PTSZ(cuMemcpy3DPeerAsync, kContext, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream), (copy, stream)) {
  return peer_box(call, stream, "cuMemcpy3DPeerAsync", copy, false);
}

SIM_CALL_PTSZ(cuMemcpyBatchAsync, kContext,
              (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
               size_t* first_with, size_t attribute_count, size_t* failed, CUstream stream),
              (to, from, sizes, count, attributes, first_with, attribute_count, failed, stream)) {
  return batch(call, stream, to, from, sizes, count, attributes, first_with, attribute_count, failed);
}
SIM_CALL_PTSZ(cuMemcpyBatchAsync_v2, kContext,
              (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
               size_t* first_with, size_t attribute_count, CUstream stream),
              (to, from, sizes, count, attributes, first_with, attribute_count, stream)) {
  return batch(call, stream, to, from, sizes, count, attributes, first_with, attribute_count, nullptr);
}
SIM_CALL_PTSZ(cuMemcpy3DBatchAsync, kContext,
              (size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed, unsigned long long flags, CUstream stream),
              (count, ops, failed, flags, stream)) {
  return box_batch(call, stream, count, ops, failed, flags);
}
SIM_CALL_PTSZ(cuMemcpy3DBatchAsync_v2, kContext,
              (size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags, CUstream stream),
              (count, ops, flags, stream)) {
  return box_batch(call, stream, count, ops, nullptr, flags);
}
