#include "replayer/bundle/runs.h"

#include <algorithm>
#include <chrono>

namespace nimble::bundle {

namespace {

void check(CUresult result, const char* doing) { LiveDriver::check(result, doing); }

}  // namespace

Stopwatch::Stopwatch(LiveDriver& driver) : driver_(driver) {
  for (CUevent* const event : {&begin_, &end_})
    check(driver.api().cuEventCreate_(event, CU_EVENT_DEFAULT), "for an event");
}

Stopwatch::~Stopwatch() {
  for (const CUevent event : {begin_, end_})
    if (event) driver_.api().cuEventDestroy_(event);
}

RunTime Stopwatch::time(const std::function<void()>& step) {
  RunTime time;
  const auto begin = std::chrono::steady_clock::now();
  step();
  check(driver_.cuCtxSynchronize_(), "when the step has run");
  time.host_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  float ms = 0;
  check(driver_.api().cuEventElapsedTime_(&ms, begin_, end_), "for the time of the step");
  time.gpu_us = 1000.0 * static_cast<double>(ms);
  return time;
}

InOrder::InOrder(LiveDriver& driver, const RecordedStep& step, LiveOps& ops)
    : driver_(driver), step_(step), ops_(ops), watch_(driver) {
  joins_.resize(ops.streams().size() - 1);
  for (CUevent& join : joins_) check(driver.api().cuEventCreate_(&join, CU_EVENT_DISABLE_TIMING), "for an event");
  std::vector<TraceCall> calls;
  for (std::uint32_t i = 0; i < step.ops(); ++i) calls.push_back(step.op(i));
  handovers_ = handovers_of(calls);
  for (Handover& handover : handovers_)
    check(driver.api().cuEventCreate_(&handover.event, CU_EVENT_DISABLE_TIMING), "for an event");
}

InOrder::~InOrder() {
  for (const CUevent join : joins_) driver_.api().cuEventDestroy_(join);
  for (const Handover& handover : handovers_) driver_.api().cuEventDestroy_(handover.event);
}

std::vector<Handover> handovers_of(const std::vector<TraceCall>& ops) {
  struct Released {
    std::uint32_t op = 0;
    std::uint64_t size = 1;  // of memory that is older than the step it is not known; but some there is
  };
  std::vector<Handover> found;
  std::vector<Released> released;
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const TraceCall& call = ops[i];
    if (call.kind == CallKind::free_async) {
      Released& one = released.emplace_back(Released{i});
      for (std::uint32_t k = i; k-- > 0 && one.size == 1;)
        if (ops[k].kind == CallKind::alloc_async && ops[k].address == call.address) one.size = ops[k].size;
    }
    if (call.kind != CallKind::alloc_async) continue;
    for (const Released& one : released) {
      const TraceCall& before = ops[one.op];
      if (before.stream != call.stream && before.address < call.address + call.size &&
          call.address < before.address + one.size)
        found.push_back({one.op, i, nullptr});
    }
  }
  return found;
}

RunTime InOrder::run() {
  return watch_.time([this] { submit_all(); });
}

void InOrder::submit_all() {
  const DriverApi& api = driver_.api();
  const CUstream first = ops_.stream(ops_.streams().front());
  check(api.cuEventRecord_(watch_.begin(), first), "for an event");
  for (std::size_t i = 0; i < joins_.size(); ++i)
    check(api.cuStreamWaitEvent_(ops_.stream(ops_.streams()[i + 1]), watch_.begin(), 0), "for an event");
  for (const Moment& moment : step_.moments()) {
    if (moment.op == kNone) {
      host_call(*moment.call);
      continue;
    }
    const CUstream stream = ops_.stream(moment.call->stream);
    for (const Handover& handover : handovers_)
      if (handover.to == moment.op) check(api.cuStreamWaitEvent_(stream, handover.event, 0), "for an event");
    check(ops_.submit(moment.op, stream), "for an op of the step");
    for (const Handover& handover : handovers_)
      if (handover.from == moment.op) check(api.cuEventRecord_(handover.event, stream), "for an event");
  }
  for (std::size_t i = 0; i < joins_.size(); ++i) {
    check(api.cuEventRecord_(joins_[i], ops_.stream(ops_.streams()[i + 1])), "for an event");
    check(api.cuStreamWaitEvent_(first, joins_[i], 0), "for an event");
  }
  check(api.cuEventRecord_(watch_.end(), first), "for an event");
}

void InOrder::host_call(const TraceCall& call) {
  switch (call.kind) {
    case CallKind::stream_synchronize: {
      const auto& streams = ops_.streams();
      if (std::find(streams.begin(), streams.end(), call.stream) != streams.end())
        check(driver_.api().cuStreamSynchronize_(ops_.stream(call.stream)), "when a stream is waited for");
      break;
    }
    case CallKind::event_synchronize:
      if (const CUevent event = ops_.recorded_event(call.event))
        check(driver_.cuEventSynchronize_(event), "when an event is waited for");
      break;
    case CallKind::context_synchronize:
      check(driver_.cuCtxSynchronize_(), "when the device is waited for");
      break;
    default:
      break;
  }
}

}  // namespace nimble::bundle
