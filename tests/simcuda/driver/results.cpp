// The results of the driver API: their names, and what they mean in a few words.
#include <cstring>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/observe/report.h"

namespace simcuda {
namespace {

struct Result {
  CUresult value;
  const char *name, *text;
};

#define SIM_RESULT(value, text) \
  { value, #value, text }
constexpr Result kResults[] = {
    SIM_RESULT(CUDA_SUCCESS, "no error"),
    SIM_RESULT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SIM_RESULT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SIM_RESULT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SIM_RESULT(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    SIM_RESULT(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled"),
    SIM_RESULT(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    SIM_RESULT(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    SIM_RESULT(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    SIM_RESULT(CUDA_ERROR_STUB_LIBRARY, "stub library"),
    SIM_RESULT(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver"),
    SIM_RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable"),
    SIM_RESULT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SIM_RESULT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SIM_RESULT(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed"),
    SIM_RESULT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    SIM_RESULT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    SIM_RESULT(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    SIM_RESULT(CUDA_ERROR_MAP_FAILED, "map failed"),
    SIM_RESULT(CUDA_ERROR_UNMAP_FAILED, "unmap failed"),
    SIM_RESULT(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    SIM_RESULT(CUDA_ERROR_ALREADY_MAPPED, "already mapped"),
    SIM_RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    SIM_RESULT(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired"),
    SIM_RESULT(CUDA_ERROR_NOT_MAPPED, "not mapped"),
    SIM_RESULT(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array"),
    SIM_RESULT(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer"),
    SIM_RESULT(CUDA_ERROR_ECC_UNCORRECTABLE, "ecc uncorrectable"),
    SIM_RESULT(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit"),
    SIM_RESULT(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use"),
    SIM_RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported"),
    SIM_RESULT(CUDA_ERROR_INVALID_PTX, "invalid ptx"),
    SIM_RESULT(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context"),
    SIM_RESULT(CUDA_ERROR_NVLINK_UNCORRECTABLE, "nvlink uncorrectable"),
    SIM_RESULT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "jit compiler not found"),
    SIM_RESULT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "unsupported ptx version"),
    SIM_RESULT(CUDA_ERROR_JIT_COMPILATION_DISABLED, "jit compilation disabled"),
    SIM_RESULT(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported exec affinity"),
    SIM_RESULT(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported devside sync"),
    SIM_RESULT(CUDA_ERROR_CONTAINED, "contained"),
    SIM_RESULT(CUDA_ERROR_INVALID_SOURCE, "invalid source"),
    SIM_RESULT(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    SIM_RESULT(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    SIM_RESULT(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed"),
    SIM_RESULT(CUDA_ERROR_OPERATING_SYSTEM, "operating system"),
    SIM_RESULT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SIM_RESULT(CUDA_ERROR_ILLEGAL_STATE, "illegal state"),
    SIM_RESULT(CUDA_ERROR_LOSSY_QUERY, "lossy query"),
    SIM_RESULT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SIM_RESULT(CUDA_ERROR_NOT_READY, "device not ready"),
    SIM_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    SIM_RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources"),
    SIM_RESULT(CUDA_ERROR_LAUNCH_TIMEOUT, "launch timeout"),
    SIM_RESULT(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing"),
    SIM_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled"),
    SIM_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled"),
    SIM_RESULT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context active"),
    SIM_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    SIM_RESULT(CUDA_ERROR_ASSERT, "assert"),
    SIM_RESULT(CUDA_ERROR_TOO_MANY_PEERS, "too many peers"),
    SIM_RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered"),
    SIM_RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered"),
    SIM_RESULT(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    SIM_RESULT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction"),
    SIM_RESULT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    SIM_RESULT(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space"),
    SIM_RESULT(CUDA_ERROR_INVALID_PC, "invalid pc"),
    SIM_RESULT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SIM_RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large"),
    SIM_RESULT(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak"),
    SIM_RESULT(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    SIM_RESULT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SIM_RESULT(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready"),
    SIM_RESULT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch"),
    SIM_RESULT(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device"),
    SIM_RESULT(CUDA_ERROR_MPS_CONNECTION_FAILED, "mps connection failed"),
    SIM_RESULT(CUDA_ERROR_MPS_RPC_FAILURE, "mps rpc failure"),
    SIM_RESULT(CUDA_ERROR_MPS_SERVER_NOT_READY, "mps server not ready"),
    SIM_RESULT(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "mps max clients reached"),
    SIM_RESULT(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "mps max connections reached"),
    SIM_RESULT(CUDA_ERROR_MPS_CLIENT_TERMINATED, "mps client terminated"),
    SIM_RESULT(CUDA_ERROR_CDP_NOT_SUPPORTED, "cdp not supported"),
    SIM_RESULT(CUDA_ERROR_CDP_VERSION_MISMATCH, "cdp version mismatch"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit"),
    SIM_RESULT(CUDA_ERROR_CAPTURED_EVENT, "captured event"),
    SIM_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread"),
    SIM_RESULT(CUDA_ERROR_TIMEOUT, "timeout"),
    SIM_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph exec update failure"),
    SIM_RESULT(CUDA_ERROR_EXTERNAL_DEVICE, "external device"),
    SIM_RESULT(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    SIM_RESULT(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded"),
    SIM_RESULT(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    SIM_RESULT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    SIM_RESULT(CUDA_ERROR_KEY_ROTATION, "key rotation"),
    SIM_RESULT(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef SIM_RESULT

const Result* find(CUresult value) {
  for (const Result& result : kResults) {
    if (result.value == value) return &result;
  }
  return nullptr;
}

}  // namespace

const char* result_name(CUresult value) {
  const Result* result = find(value);
  return result != nullptr ? result->name : nullptr;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL(cuGetErrorName, kNothing, (CUresult value, const char** out), (value, out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Result* result = find(value);
  *out = result != nullptr ? result->name : nullptr;
  return result != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuGetErrorString, kNothing, (CUresult value, const char** out), (value, out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Result* result = find(value);
  *out = result != nullptr ? result->text : nullptr;
  return result != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
