// See submit.h.
#include "tests/simcuda/engine/submit.h"

#include "tests/simcuda/engine/op_failure.h"
#include "tests/simcuda/graph/capture.h"

namespace simcuda {

void account(Driver& d, WorkKind kind) {
  const nimble::DeviceModel& model = d.clock.model();
  switch (kind) {
    case WorkKind::kKernel:
      ++d.counters.kernels;
      return count_submission(d, model.launch_host_us);
    case WorkKind::kCopy:
      ++d.counters.copies;
      return count_submission(d, model.launch_host_us);
    case WorkKind::kSet:
      ++d.counters.sets;
      return count_submission(d, model.launch_host_us);
    case WorkKind::kHost:
    case WorkKind::kWriteValue:
    case WorkKind::kWaitValue:
      return count_submission(d, model.launch_host_us);
    case WorkKind::kEventRecord:
    case WorkKind::kEventWait:
      return d.clock.spend(model.event_host_us);
    case WorkKind::kAlloc:
    case WorkKind::kFree:
      return d.clock.spend(model.allocation_host_us);
    case WorkKind::kEmpty:
      return;
  }
}

CUresult submit(Call& call, CUstream stream, CUgraphNodeType type, Work&& work) {
  if (const CUresult error = check_stream(stream)) return error;
  if (capturing(stream)) return capture_node(stream, type, std::move(work));
  if (const CUresult error = refusal(call, work, false)) return error;
  account(call.driver, work.kind);
  Op* op = call.driver.engine.make();
  op->work = std::move(work);
  call.driver.engine.submit(op, stream);
  return CUDA_SUCCESS;
}

void observe(Call& call, const Tail& tail) {
  call.driver.clock.see(tail.end_us);
  call.driver.tracking.host_saw(tail.clock);
}

bool idle(CUstream stream) {
  if (stream->tail.last.pending()) return false;
  if (!stream->legacy) return true;
  for (CUstream other : stream->context->since_legacy) {
    if (other->tail.last.pending()) return false;
  }
  return true;
}

CUresult wait_for(Call& call, const Tail& tail, CUcontext context) {
  call.driver.engine.finish(tail.last);
  call.driver.clock.wait_until(tail.end_us);
  call.driver.tracking.host_saw(tail.clock);
  return context->fault;
}

CUresult wait_for(Call& call, CUstream stream) {
  CUcontext context = stream->context;
  Tail tail = stream->tail;
  if (stream->legacy) {
    // The legacy stream represents all blocking ones.
    const std::vector<CUstream> others = context->since_legacy;
    for (CUstream other : others) {
      if (valid(other)) wait_for(call, Tail(other->tail), context);
    }
  }
  return wait_for(call, tail, context);
}

}  // namespace simcuda
