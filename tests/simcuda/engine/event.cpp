// Events. An event's order is known at once when it is recorded; whether it has happened, only when the record has run.
// Times are simulated. A stream's waits for events are in stream.cpp.
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

using namespace simcuda;

namespace simcuda {

void record_event(CUevent event, const Tail& tail) {
  event->recorded = true;
  event->tail = tail;
  event->capture.reset();
  event->capture_tail.clear();
}

std::uint64_t next_event_id() {
  static std::uint64_t ids = 0;
  return ++ids;
}

}  // namespace simcuda

SIM_CALL(cuEventCreate, kContext, (CUevent * event, unsigned flags), (event, flags)) {
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (event == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  *event = call.driver.events.make();
  (*event)->flags = flags;
  (*event)->context = call.context;
  (*event)->id = next_event_id();
  return CUDA_SUCCESS;
}

SIM_CALL(cuEventDestroy_v2, kContext, (CUevent event), (event)) {
  if (!valid(event)) return CUDA_ERROR_INVALID_HANDLE;
  call.driver.events.release(event);
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuEventDestroy, cuEventDestroy_v2, kContext, (CUevent event), (event))

static CUresult record(Call& call, CUevent event, CUstream handle, unsigned flags) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr || !valid(event)) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = check_stream(stream)) return error;
  Work work = make_work(WorkKind::kEventRecord, "cuEventRecord");
  work.event = {event, (flags & CU_EVENT_RECORD_EXTERNAL) != 0, event->id};
  if (capturing(stream)) {
    if (work.event.external) return capture_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, std::move(work));
    event->recorded = true;
    event->capture = stream->capture;
    event->capture_tail = stream->capture_tail;
    return CUDA_SUCCESS;
  }
  if (const CUresult error = submit(call, stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, std::move(work))) return error;
  record_event(event, stream->tail);
  return CUDA_SUCCESS;
}

SIM_CALL_PTSZ(cuEventRecord, kContext, (CUevent event, CUstream stream), (event, stream)) {
  return record(call, event, stream, 0);
}
SIM_CALL_PTSZ(cuEventRecordWithFlags, kContext, (CUevent event, CUstream stream, unsigned flags),
              (event, stream, flags)) {
  return record(call, event, stream, flags);
}

// An event recorded in a capture cannot be waited for outside it.
static CUresult forbid_captured(Call& call, CUevent event) {
  if (!valid(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) {
    invalidate(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return forbid_while_capturing(call);
}

SIM_CALL(cuEventSynchronize, kContext, (CUevent event), (event)) {
  if (const CUresult error = forbid_captured(call, event)) return error;
  return event->recorded ? wait_for(call, Tail(event->tail), event->context) : CUDA_SUCCESS;
}

SIM_CALL(cuEventQuery, kContext, (CUevent event), (event)) {
  if (const CUresult error = forbid_captured(call, event)) return error;
  if (!event->recorded) return CUDA_SUCCESS;
  const Tail tail = event->tail;
  if (tail.last.pending()) {
    call.driver.engine.make_some_progress();
    if (call.context->fault != CUDA_SUCCESS) return call.context->fault;
    if (tail.last.pending()) return CUDA_ERROR_NOT_READY;
  }
  observe(call, tail);
  return call.context->fault;
}

SIM_CALL(cuEventElapsedTime, kContext, (float* milliseconds, CUevent start, CUevent end), (milliseconds, start, end)) {
  if (!valid(start) || !valid(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (CUevent event : {start, end}) {
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->recorded || (event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (start->tail.last.pending() || end->tail.last.pending()) {
    call.driver.engine.make_some_progress();  // a program may poll this, too
    return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = static_cast<float>((end->tail.end_us - start->tail.end_us) * 1e-3);
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime, kContext, (float* milliseconds, CUevent start, CUevent end),
          (milliseconds, start, end))
