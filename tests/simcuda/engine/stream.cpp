// Streams: made, asked about, waited for.
#include <algorithm>

#include "tests/simcuda/engine/op_failure.h"
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

namespace simcuda {

CUstream make_stream(CUcontext context, unsigned flags, int priority) {
  Driver& d = driver();
  CUstream stream = d.streams.make();
  stream->id = d.next_stream_id++;
  stream->context = context;
  stream->flags = flags;
  stream->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  stream->priority = std::clamp(priority, -5, 0);
  context->streams.push_back(stream);
  return stream;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL(cuStreamCreate, kContext, (CUstream * stream, unsigned flags), (stream, flags)) {
  if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  *stream = make_stream(call.context, flags, 0);
  return CUDA_SUCCESS;
}

SIM_CALL(cuStreamCreateWithPriority, kContext, (CUstream * stream, unsigned flags, int priority),
         (stream, flags, priority)) {
  if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  *stream = make_stream(call.context, flags, priority);
  return CUDA_SUCCESS;
}

// Work that it was given goes on without it.
SIM_CALL(cuStreamDestroy_v2, kContext, (CUstream handle), (handle)) {
  CUstream stream = call.stream(handle);
  if (handle == nullptr || stream == nullptr || stream->legacy || stream->per_thread) return CUDA_ERROR_INVALID_HANDLE;
  abandon_capture(stream);
  CUcontext context = stream->context;
  if (stream->in_since_legacy) {
    // What the legacy stream would have waited for through this stream. Waiting for it here keeps the rule.
    call.driver.engine.finish(stream->tail.last);
    std::erase(context->since_legacy, stream);
  }
  if (call.driver.tracking.on()) {
    Ticks all = context->all.clock != nullptr ? *context->all.clock : Ticks();
    Tracking::join(all, stream->tail.clock);
    context->all.clock = std::make_shared<const Ticks>(std::move(all));
  }
  std::erase(context->streams, stream);
  call.driver.streams.release(stream);
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuStreamDestroy, cuStreamDestroy_v2, kContext, (CUstream handle), (handle))

SIM_CALL_PTSZ(cuStreamGetPriority, kContext, (CUstream handle, int* priority), (handle, priority)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamGetFlags, kContext, (CUstream handle, unsigned* flags), (handle, flags)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = forbid_question(stream)) return error;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamGetId, kContext, (CUstream handle, unsigned long long* id), (handle, id)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = forbid_question(stream)) return error;
  *id = stream->id;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamGetDevice, kContext, (CUstream handle, CUdevice* device), (handle, device)) {
  if (call.stream(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamGetCtx, kContext, (CUstream handle, CUcontext* context), (handle, context)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamGetCtx_v2, kContext, (CUstream handle, CUcontext* context, CUgreenCtx* green),
              (handle, context, green)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context;
  *green = nullptr;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamSynchronize, kContext, (CUstream handle), (handle)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = forbid_wait_for(call, stream)) return error;
  return wait_for(call, stream);
}

SIM_CALL_PTSZ(cuStreamQuery, kContext, (CUstream handle), (handle)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = forbid_wait_for(call, stream)) return error;
  if (!idle(stream)) {
    call.driver.engine.make_some_progress();
    if (call.context->fault != CUDA_SUCCESS) return call.context->fault;
    if (!idle(stream)) return CUDA_ERROR_NOT_READY;
  }
  if (stream->legacy) {
    for (CUstream other : call.context->since_legacy) observe(call, other->tail);
  }
  observe(call, stream->tail);
  return call.context->fault;
}

SIM_CALL_PTSZ(cuStreamWaitEvent, kContext, (CUstream handle, CUevent event, unsigned flags), (handle, event, flags)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr || !valid(event)) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_stream(stream)) return error;
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
    if (!capturing(stream)) return CUDA_ERROR_INVALID_VALUE;
    Work work = make_work(WorkKind::kEventWait, "cuStreamWaitEvent");
    work.event = {event, true, event->id};
    return capture_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, std::move(work));
  }
  if (event->capture != nullptr || capturing(stream)) return join_capture(stream, event);
  Work wait = make_work(WorkKind::kEventWait, "cuStreamWaitEvent");
  wait.event = {event, false};
  if (const CUresult error = refusal(call, wait, false)) return error;
  if (!event->recorded) return CUDA_SUCCESS;  // as if it had happened long ago
  Op* op = call.driver.engine.make();
  op->work = make_work(WorkKind::kEventWait, "cuStreamWaitEvent");
  call.driver.clock.spend(call.driver.clock.model().event_host_us);
  call.driver.engine.follow(op, event->tail);
  call.driver.engine.submit(op, stream);
  return CUDA_SUCCESS;
}

static CUresult host_function(Call& call, CUstream handle, HostCall host, const char* name) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Work work = make_work(WorkKind::kHost, name);
  work.host = host;
  return submit(call, stream, CU_GRAPH_NODE_TYPE_HOST, std::move(work));
}

SIM_CALL_PTSZ(cuLaunchHostFunc, kContext, (CUstream handle, CUhostFn function, void* data), (handle, function, data)) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return host_function(call, handle, {function, nullptr, nullptr, data}, "cuLaunchHostFunc");
}

SIM_CALL_PTSZ(cuStreamAddCallback, kContext, (CUstream handle, CUstreamCallback callback, void* data, unsigned flags),
              (handle, callback, data, flags)) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUstream stream = call.stream(handle); stream != nullptr && capturing(stream)) {
    invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return host_function(call, handle, {nullptr, callback, handle, data}, "cuStreamAddCallback");
}

SIM_CALL_PTSZ(cuStreamGetAttribute, kContext, (CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value),
              (handle, id, value)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto set = stream->attributes.find(id);
  *value = set != stream->attributes.end() ? set->second : CUstreamAttrValue{};
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamSetAttribute, kContext, (CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value),
              (handle, id, value)) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) stream->priority = std::clamp(value->priority, -5, 0);
  stream->attributes[id] = *value;
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuStreamCopyAttributes, kContext, (CUstream to, CUstream from), (to, from)) {
  CUstream target = call.stream(to), source = call.stream(from);
  if (target == nullptr || source == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  target->attributes = source->attributes;
  return CUDA_SUCCESS;
}
