// Writes to, and waits for, values in memory, in stream order. A wait is looked at again each time that work could run,
// so whoever writes the value, even the program itself with no call, ends it.
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"
#include "tests/simcuda/memory/copy.h"

using namespace simcuda;

namespace {

CUresult value_op(Call& call, CUstream handle, WorkKind kind, const char* name, CUdeviceptr address,
                  std::uint64_t value, std::uint32_t bytes, unsigned flags) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (capturing(stream)) return not_supported("capture of a memory operation");
  Work work = make_work(kind, name);
  work.value = {address, value, bytes, flags};
  return submit(call, stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, std::move(work));
}

CUresult batch(Call& call, CUstream handle, unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags) {
  if (ops == nullptr || count == 0 || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {  // all or none
    switch (ops[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      case CU_STREAM_MEM_OP_BARRIER:
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        continue;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    const auto& wait = ops[i].waitValue;
    const auto& write = ops[i].writeValue;
    CUresult result = CUDA_SUCCESS;
    switch (ops[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        result =
            value_op(call, handle, WorkKind::kWaitValue, "cuStreamBatchMemOp", wait.address, wait.value, 4, wait.flags);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        result = value_op(call, handle, WorkKind::kWaitValue, "cuStreamBatchMemOp", wait.address, wait.value64, 8,
                          wait.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        result = value_op(call, handle, WorkKind::kWriteValue, "cuStreamBatchMemOp", write.address, write.value, 4, 0);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        result =
            value_op(call, handle, WorkKind::kWriteValue, "cuStreamBatchMemOp", write.address, write.value64, 8, 0);
        break;
      default:
        break;  // barriers and flushes: ops of a stream are in order anyway
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

#define SIM_VALUE(symbol, kind, type, bytes)                                                                        \
  SIM_CALL_PTSZ(symbol, kContext, (CUstream stream, CUdeviceptr address, type value, unsigned flags),               \
                (stream, address, value, flags)) {                                                                  \
    return value_op(call, stream, WorkKind::kind, #symbol, address, value, bytes, flags);                           \
  }                                                                                                                 \
  SIM_ALIAS_PTSZ(symbol##_v2, symbol, kContext, (CUstream stream, CUdeviceptr address, type value, unsigned flags), \
                 (stream, address, value, flags))

SIM_VALUE(cuStreamWaitValue32, kWaitValue, cuuint32_t, 4)
SIM_VALUE(cuStreamWaitValue64, kWaitValue, cuuint64_t, 8)
SIM_VALUE(cuStreamWriteValue32, kWriteValue, cuuint32_t, 4)
SIM_VALUE(cuStreamWriteValue64, kWriteValue, cuuint64_t, 8)

SIM_CALL_PTSZ(cuStreamBatchMemOp, kContext,
              (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags),
              (stream, count, ops, flags)) {
  return batch(call, stream, count, ops, flags);
}
SIM_ALIAS_PTSZ(cuStreamBatchMemOp_v2, cuStreamBatchMemOp, kContext,
               (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags),
               (stream, count, ops, flags))
