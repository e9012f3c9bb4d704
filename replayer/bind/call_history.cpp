#include "replayer/bind/call_history.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "nimble/internal/trace.h"

namespace nimble {

namespace {

bool is_release(CallKind kind) { return kind == CallKind::free || kind == CallKind::free_async; }

}  // namespace

bool CallHistory::matters(const Call& call) {
  if (call.ends == Ends::stream || call.asked.question == Question::pool) return true;
  if (!call.traced) return false;
  switch (call.kind) {
    case CallKind::alloc:
    case CallKind::alloc_async:
    case CallKind::free:
    case CallKind::free_async:
    case CallKind::hidden:
    case CallKind::capture_begin:
    case CallKind::capture_end:
      return true;
    default:
      return false;
  }
}

void CallHistory::before(const Call& call) {
  if (call.ends == Ends::stream) return captures_.forget(call.stream);
  pool_asked_ = pool_asked_ || call.asked.question == Question::pool;
  if (call.kind == CallKind::capture_begin) captures_.begin(call.stream);
  // A release on a capturing stream goes into a graph, and releases nothing now.
  if (!is_release(call.kind) || (call.kind == CallKind::free_async && capturing() && is_capturing(call.stream))) return;
  live_.erase(call.memory.address);
  for (auto at = live_.lower_bound(call.memory.address);
       at != live_.end() && at->first - call.memory.address < call.memory.size;)
    at = live_.erase(at);
}

void CallHistory::add(const Call& call) {
  if (call.memory.size == 0) return;
  // Allocations that the new one overlaps are gone: the driver would not have reused their addresses otherwise.
  auto at = live_.upper_bound(call.memory.address);
  if (at != live_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.size > call.memory.address) live_.erase(before);
  }
  while (at != live_.end() && at->first - call.memory.address < call.memory.size) at = live_.erase(at);
  const MemoryKind memory = call.kind == CallKind::alloc_async ? MemoryKind::stream_ordered : call.memory.kind;
  live_[call.memory.address] = {call.memory.size, memory, call.memory.own_pool, call.context};
}

void CallHistory::after(const Call& call, CUresult result) {
  const bool good = result == CUDA_SUCCESS;
  switch (call.kind) {
    case CallKind::alloc:
    case CallKind::alloc_async:
      if (good) add(call);
      break;
    case CallKind::hidden: {
      const auto same = [&](const Call& other) {
        return other.texture == call.texture && std::strcmp(other.note, call.note) == 0;
      };
      if (!good || std::any_of(hidden_.begin(), hidden_.end(), same)) break;
      Call kept;
      kept.kind = CallKind::hidden;
      kept.symbol = call.symbol;
      kept.traced = true;
      kept.note = call.note;
      kept.texture = call.texture;
      hidden_.push_back(kept);
      break;
    }
    case CallKind::capture_begin:
      if (!good) captures_.forget(call.stream);
      break;
    case CallKind::capture_end:
      // A capture may go on after a call that should have ended it, and end in a call that failed.
      if (!is_capturing(call.stream)) captures_.forget(call.stream);
      break;
    default:
      break;
  }
}

void CallHistory::prepare() {
  if (is_capturing_.load(std::memory_order_acquire)) return;
  is_capturing_ = reinterpret_cast<decltype(&::cuStreamIsCapturing)>(context_.driver_symbol("cuStreamIsCapturing"));
}

bool CallHistory::is_capturing(const StreamRef& stream) const {
  const auto ask = is_capturing_.load(std::memory_order_acquire);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && ask(stream.handle, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CallHistory::restart(const std::vector<Allocation>& alive) {
  std::map<std::uint64_t, Live> now;
  for (const Allocation& allocation : alive) {
    const auto known = live_.find(allocation.base);
    const bool same = known != live_.end() && known->second.size == allocation.size;
    now[allocation.base] = same ? known->second : Live{allocation.size, allocation.memory, false, nullptr};
  }
  live_ = std::move(now);
}

std::vector<Call> CallHistory::calls() const {
  std::vector<Call> calls = hidden_;
  if (pool_asked_) {
    Call& call = calls.emplace_back();
    call.symbol = "an earlier query";
    call.asked.question = Question::pool;
  }
  for (const auto& [address, allocation] : live_) {
    Call& call = calls.emplace_back();
    call.kind = CallKind::alloc;
    call.symbol = "an earlier allocation";
    call.traced = true;
    call.memory.address = address;
    call.memory.size = allocation.size;
    call.memory.kind = allocation.memory;
    call.memory.own_pool = allocation.own_pool;
    call.context = allocation.context;
  }
  return calls;
}

std::vector<Call> CallHistory::calls_to_record() const {
  std::vector<Call> calls = this->calls();
  std::erase_if(calls, [](const Call& call) { return call.asked.question != Question::none; });  // for replay only
  calls.push_back(unrecorded());
  return calls;
}

Call CallHistory::unrecorded() {
  Call call;
  call.symbol = kNotRecorded;
  call.kind = CallKind::opaque;
  call.traced = call.has_stream = true;
  call.stream = {nullptr, 1};
  return call;
}

}  // namespace nimble
