#include "shim/rewrite/capture/captures_under_way.h"

#include <chrono>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

namespace {

// Whether the current call's stream was capturing when the call was about to end that.
thread_local bool t_ending __attribute__((tls_model("initial-exec")));

}  // namespace

std::optional<CapturesUnderWay::Capturing> CapturesUnderWay::of(const Call& call) const {
  return call.has_stream ? of(call.stream.handle) : std::nullopt;
}

std::optional<CapturesUnderWay::Capturing> CapturesUnderWay::of(CUstream stream) const {
  const auto ask =
      reinterpret_cast<decltype(&::cuStreamGetCaptureInfo_v2)>(context_.driver_symbol("cuStreamGetCaptureInfo_v2"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  Capturing found;
  cuuint64_t id = 0;
  if (!ask || ask(stream, &status, &id, &found.graph, nullptr, nullptr) != CUDA_SUCCESS ||
      status == CU_STREAM_CAPTURE_STATUS_NONE)
    return std::nullopt;
  found.id = id;
  found.active = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return found;
}

std::size_t CapturesUnderWay::count_nodes(CUgraph graph) const {
  std::size_t count = 0;
  const auto ask = reinterpret_cast<decltype(&::cuGraphGetNodes)>(context_.driver_symbol("cuGraphGetNodes"));
  if (ask && graph) ask(graph, nullptr, &count);
  return count;
}

void CapturesUnderWay::wait_until_free() const {
  const NotCancelled not_cancelled;
  while (held_.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

std::optional<CapturesUnderWay::Begun> CapturesUnderWay::began(const Call& call, bool good) {
  if (!good) count_.fetch_sub(1, std::memory_order_relaxed);
  const std::optional<Capturing> capture = good ? of(call) : std::nullopt;
  if (!capture) return std::nullopt;
  const Begun begun{capture->id, streams().context(call.stream), call.graph.handle != nullptr};
  const std::lock_guard lock(mutex_);
  // An earlier one there has ended unseen.
  if (!begun_.insert_or_assign(call.stream.key, begun).second) count_.fetch_sub(1, std::memory_order_relaxed);
  return begun;
}

// Must ask before the capture ends; and the driver does not identify an invalidated one.
std::optional<std::uint64_t> CapturesUnderWay::ends(const Call& call) {
  t_ending = of(call).has_value();
  if (!t_ending) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = begun_.find(call.stream.key);
  return found != begun_.end() ? std::optional(found->second.id) : std::nullopt;
}

// The call may end no capture, and a capture may go on after a call that should have ended it.
std::optional<CapturesUnderWay::Begun> CapturesUnderWay::ended(const Call& call) {
  if (!t_ending || of(call)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = begun_.find(call.stream.key);
  if (found == begun_.end()) return std::nullopt;
  const Begun begun = found->second;
  begun_.erase(found);
  count_.fetch_sub(1, std::memory_order_relaxed);
  return begun;
}

std::vector<CapturesUnderWay::Begun> CapturesUnderWay::forget(const Call& call) {
  std::vector<Begun> gone;
  const std::lock_guard lock(mutex_);
  std::erase_if(begun_, [&](const auto& one) {
    const Begun& begun = one.second;
    const bool ends = call.ends == Ends::stream ? one.first == call.stream.key
                                                : !call.context || !begun.context || begun.context == call.context;
    if (ends) gone.push_back(begun);
    return ends;
  });
  count_.fetch_sub(static_cast<int>(gone.size()), std::memory_order_relaxed);
  return gone;
}

}  // namespace nimble::shim
