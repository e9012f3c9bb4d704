// Contexts: primary and created ones, and which is current to a thread.
#include <algorithm>
#include <vector>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/graph/capture.h"

namespace simcuda {
namespace {

// Without a destructor, for programs still call the driver from the destructors of their own globals.
struct ContextStack {
  static constexpr std::size_t kMax = 64;
  CUcontext contexts[kMax];
  std::size_t size;

  bool empty() const { return size == 0; }
  CUcontext back() const { return contexts[size - 1]; }
  bool push(CUcontext context) {
    if (size == kMax) return false;
    contexts[size++] = context;
    return true;
  }
  void pop() { --size; }
};
thread_local ContextStack current;
thread_local std::uint64_t this_thread = 0;  // 0: not numbered yet
std::uint64_t next_thread = 1;               // under the driver's mutex

void release_primary(Driver& d) {
  end_context(d.primary);
  d.primary->alive = false;
}

CUresult create(Call& call, CUcontext* context, unsigned flags, CUdevice device, unsigned api_version) {
  if (context == nullptr || (flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext made = call.driver.contexts.make();
  made->flags = flags;
  made->api_version = api_version;
  init_context(made);
  *context = made;
  return current.push(made) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUcontext current_context() { return current.empty() ? nullptr : current.back(); }

void init_context(CUcontext context) {
  Driver& d = driver();
  context->id = d.next_context_id++;
  context->alive = true;
  context->fault = CUDA_SUCCESS;
  context->legacy = d.streams.make();
  context->legacy->context = context;
  context->legacy->legacy = true;
  context->legacy->id = d.next_stream_id++;
}

void end_context(CUcontext context) {
  Driver& d = driver();
  for (CUstream stream : context->streams) abandon_capture(stream);
  d.engine.run_until([&] { return context->pending == 0; });
  while (!context->modules.empty()) unload_module(context->modules.back());
  for (auto block = d.memory.blocks().begin(); block != d.memory.blocks().end();) {
    Block* held = &(block++)->second;
    if (held->context == context && held->kind == BlockKind::kDevice) d.memory.release(held);
  }
  for (CUstream stream : context->streams) d.streams.release(stream);
  d.streams.release(context->legacy);
  const bool primary = context->primary;
  const std::uint64_t id = context->id;
  *context = CUctx_st();
  context->tag = CUctx_st::kTag;
  context->primary = primary;
  context->id = id;
}

std::uint64_t thread_number() {
  if (this_thread == 0) this_thread = next_thread++;
  return this_thread;
}

CUstream per_thread_stream(CUcontext context) {
  CUstream& stream = context->per_thread[thread_number()];
  if (stream == nullptr) {
    stream = make_stream(context, CU_STREAM_DEFAULT, 0);
    stream->per_thread = true;
  }
  return stream;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL(cuCtxCreate, kInit, (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device)) {
  return create(call, context, flags, device, 3010);
}
SIM_CALL(cuCtxCreate_v2, kInit, (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device)) {
  return create(call, context, flags, device, 3020);
}
SIM_CALL(cuCtxCreate_v3, kInit,
         (CUcontext * context, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device),
         (context, affinity, count, flags, device)) {
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(call, context, flags, device, 3020);
}
SIM_CALL(cuCtxCreate_v4, kInit, (CUcontext * context, CUctxCreateParams* params, unsigned flags, CUdevice device),
         (context, params, flags, device)) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr)) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  return create(call, context, flags, device, 3020);
}

SIM_CALL(cuCtxDestroy_v2, kInit, (CUcontext context), (context)) {
  if (!valid(context) || context->primary || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (current_context() == context) current.pop();
  end_context(context);
  // The handle stays what it was, so that other threads that still have it current are told that it is destroyed.
  context->alive = false;
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuCtxDestroy, cuCtxDestroy_v2, kInit, (CUcontext context), (context))
SIM_ALIAS(cuCtxDetach, cuCtxDestroy_v2, kInit, (CUcontext context), (context))

SIM_CALL(cuCtxPushCurrent_v2, kInit, (CUcontext context), (context)) {
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return current.push(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2, kInit, (CUcontext context), (context))

SIM_CALL(cuCtxPopCurrent_v2, kInit, (CUcontext * context), (context)) {
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = current.back();
  current.pop();
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2, kInit, (CUcontext * context), (context))

SIM_CALL(cuCtxSetCurrent, kInit, (CUcontext context), (context)) {
  if (context != nullptr && !valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!current.empty()) current.pop();
  if (context != nullptr) current.push(context);
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetCurrent, kInit, (CUcontext * context), (context)) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = current_context();
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetDevice, kContext, (CUdevice * device), (device)) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetDevice_v2, kInit, (CUdevice * device, CUcontext context), (device, context)) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) context = current_context();
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetFlags, kContext, (unsigned* flags), (flags)) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = call.context->primary ? call.driver.primary_flags : call.context->flags;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxSetFlags, kContext, (unsigned flags), (flags)) {
  if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
  (call.context->primary ? call.driver.primary_flags : call.context->flags) = flags;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetId, kInit, (CUcontext context, unsigned long long* id), (context, id)) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) context = current_context();
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

// All contexts are of one device, whose memory is one: what is enabled is only kept.
SIM_CALL(cuCtxEnablePeerAccess, kContext, (CUcontext peer, unsigned flags), (peer, flags)) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer == call.context) return CUDA_ERROR_INVALID_DEVICE;
  return call.context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_CALL(cuCtxDisablePeerAccess, kContext, (CUcontext peer), (peer)) {
  if (!valid(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  return call.context->peers.erase(peer) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

SIM_CALL(cuCtxGetApiVersion, kInit, (CUcontext context, unsigned* version), (context, version)) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) context = current_context();
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetLimit, kContext, (size_t * value, CUlimit limit), (value, limit)) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  static const auto& defaults = *new std::map<int, std::size_t>{{CU_LIMIT_STACK_SIZE, 1024},
                                                                {CU_LIMIT_PRINTF_FIFO_SIZE, 7 << 20},
                                                                {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                                                                {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64}};
  const auto set = call.context->limits.find(limit);
  const auto given = defaults.find(limit);
  *value = set != call.context->limits.end() ? set->second : given != defaults.end() ? given->second : 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxSetLimit, kContext, (CUlimit limit, size_t value), (limit, value)) {
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  call.context->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetCacheConfig, kContext, (CUfunc_cache * config), (config)) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = call.context->cache_config;
  return CUDA_SUCCESS;
}
SIM_CALL(cuCtxSetCacheConfig, kContext, (CUfunc_cache config), (config)) {
  call.context->cache_config = config;
  return CUDA_SUCCESS;
}
SIM_CALL(cuCtxGetSharedMemConfig, kContext, (CUsharedconfig * config), (config)) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = call.context->shared_config;
  return CUDA_SUCCESS;
}
SIM_CALL(cuCtxSetSharedMemConfig, kContext, (CUsharedconfig config), (config)) {
  call.context->shared_config = config;
  return CUDA_SUCCESS;
}
// There is no cache to reset.
SIM_CALL(cuCtxResetPersistingL2Cache, kContext, (), ()) { return CUDA_SUCCESS; }

SIM_CALL(cuCtxGetStreamPriorityRange, kContext, (int* least, int* greatest), (least, greatest)) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

static CUresult synchronize(Call& call, CUcontext context) {
  if (const CUresult error = forbid_in_context(context)) return error;
  call.driver.engine.run_until([&] { return context->pending == 0; });
  call.driver.clock.wait_until(context->all.end_us);
  if (call.driver.tracking.on()) {
    call.driver.tracking.host_saw(context->legacy->tail.clock);
    for (CUstream stream : context->streams) call.driver.tracking.host_saw(stream->tail.clock);
    call.driver.tracking.host_saw(context->all.clock);  // of streams that are gone
  }
  return context->fault;
}

SIM_CALL(cuCtxSynchronize, kContext, (), ()) { return synchronize(call, call.context); }
SIM_CALL(cuCtxSynchronize_v2, kInit, (CUcontext context), (context)) {
  if (context == nullptr) context = current_context();
  if (!valid(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context->fault != CUDA_SUCCESS ? context->fault : synchronize(call, context);
}

SIM_CALL(cuDevicePrimaryCtxRetain, kInit, (CUcontext * context, CUdevice device), (context, device)) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  Driver& d = call.driver;
  if (d.primary == nullptr) {
    d.primary = d.contexts.make();
    d.primary->primary = true;
    d.primary->alive = false;
  }
  if (!d.primary->alive) init_context(d.primary);
  ++d.primary_uses;
  *context = d.primary;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDevicePrimaryCtxRelease_v2, kInit, (CUdevice device), (device)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  Driver& d = call.driver;
  if (d.primary_uses == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--d.primary_uses == 0 && d.primary->alive) release_primary(d);
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, kInit, (CUdevice device), (device))

SIM_CALL(cuDevicePrimaryCtxReset_v2, kInit, (CUdevice device), (device)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  Driver& d = call.driver;
  if (d.primary == nullptr || !d.primary->alive) return CUDA_SUCCESS;
  release_primary(d);
  if (d.primary_uses != 0) init_context(d.primary);  // still retained: it begins anew
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, kInit, (CUdevice device), (device))

SIM_CALL(cuDevicePrimaryCtxSetFlags_v2, kInit, (CUdevice device, unsigned flags), (device, flags)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
  call.driver.primary_flags = flags;
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, kInit, (CUdevice device, unsigned flags),
          (device, flags))

SIM_CALL(cuDevicePrimaryCtxGetState, kInit, (CUdevice device, unsigned* flags, int* active), (device, flags, active)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = call.driver.primary_flags;
  *active = call.driver.primary != nullptr && call.driver.primary->alive;
  return CUDA_SUCCESS;
}
