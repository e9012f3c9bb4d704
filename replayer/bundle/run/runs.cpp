#include "replayer/bundle/run/runs.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <unordered_map>

namespace nimble::bundle {

namespace {

void check(CUresult result, const char* doing) { LiveDriver::check(result, doing); }

}  // namespace

bool Run::same(std::uint64_t recorded, std::uint64_t found) const { return recorded == found; }

bool Run::elsewhere(std::uint64_t) const { return false; }

bool Run::rewrites(std::uint32_t) const { return false; }

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

InOrder::InOrder(LiveDriver& driver, const Bundle& bundle, const RecordedStep& step, LiveOps& ops)
    : driver_(driver), step_(step), ops_(ops), watch_(driver), released_(step.ops()) {
  joins_.resize(ops.streams().size() - 1);
  for (CUevent& join : joins_) check(driver.api().cuEventCreate_(&join, CU_EVENT_DISABLE_TIMING), "for an event");
  std::vector<TraceCall> calls;
  for (std::uint32_t i = 0; i < step.ops(); ++i) calls.push_back(step.op(i));
  handovers_ = handovers_of(calls, bundle.objects);
  for (const Handover& handover : handovers_)
    if (CUevent& event = released_[handover.from]; !event)
      check(driver.api().cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING), "for an event");
}

InOrder::~InOrder() {
  for (const auto* const events : {&joins_, &released_})
    for (const CUevent event : *events)
      if (event) driver_.api().cuEventDestroy_(event);
}

std::vector<Handover> handovers_of(const std::vector<TraceCall>& ops, const std::vector<BundleObject>& objects) {
  struct Released {
    std::uint64_t end = 0;
    std::uint32_t op = 0;
  };
  std::map<std::uint64_t, Released> released;  // by begin, disjoint: not taken over yet
  std::unordered_map<std::uint64_t, std::uint64_t> sizes;
  for (const BundleObject& object : objects)
    if (object.start) sizes[object.address] = object.size;
  // Removes the range, and calls `with` for each release that overlaps it.
  const auto take = [&](std::uint64_t begin, std::uint64_t end, const auto& ask) {
    auto at = released.upper_bound(begin);
    if (at != released.begin() && std::prev(at)->second.end > begin) --at;
    while (at != released.end() && at->first < end) {
      const auto [first, one] = *at;
      ask(one.op);
      at = released.erase(at);
      if (first < begin) released[first] = {begin, one.op};
      if (one.end > end) released[end] = one;
    }
  };
  std::vector<Handover> found;
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const TraceCall& call = ops[i];
    if (call.kind == CallKind::free_async) {
      // Memory unknown to the bundle: assume that there is some.
      const auto known = sizes.find(call.address);
      const std::uint64_t end = call.address + std::max<std::uint64_t>(known == sizes.end() ? 1 : known->second, 1);
      take(call.address, end, [](std::uint32_t) {});
      released[call.address] = {end, i};
    } else if (call.kind == CallKind::alloc_async) {
      sizes[call.address] = call.size;
      take(call.address, call.address + call.size, [&](std::uint32_t op) {
        if (ops[op].stream != call.stream) found.push_back({op, i});
      });
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
  auto handover = handovers_.begin();
  for (const Moment& moment : step_.moments()) {
    if (moment.op == kNone) {
      host_call(*moment.call);
      continue;
    }
    const CUstream stream = ops_.stream(moment.call->stream);
    for (; handover != handovers_.end() && handover->to == moment.op; ++handover)
      check(api.cuStreamWaitEvent_(stream, released_[handover->from], 0), "for an event");
    if (const CUresult result = ops_.submit(moment.op, stream); result != CUDA_SUCCESS)
      check(result, ("for " + step_.describe(moment.op)).c_str());
    if (released_[moment.op]) check(api.cuEventRecord_(released_[moment.op], stream), "for an event");
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
