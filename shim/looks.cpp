#include "shim/looks.h"

#include <algorithm>

#include "replayer/current_context.h"
#include "replayer/touched_addresses.h"

namespace nimble::shim {

bool Looks::arrives(Call& call) {
  if (!call.traced || !call.has_stream || !touches_memory(call.kind)) return false;
  onlookers_.arrives(call);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return any() && only_stream_.load(std::memory_order_acquire) != call.stream.key;
}

bool Looks::meets(Call& call, LookedAt& graph) {
  const std::lock_guard lock(mutex_);
  if (graph.is_kept() && !graph.running_ && graph.begun_ == 0) return false;
  if (graph.begun_ == 0 && graph.running_ && are_in_order(call.stream, graph.stream_, graph.made_in(), context_))
    return false;
  onlookers_.looks(call);
  if (graph.begun_ != 0) return true;
  return graph.running_ && !onlookers_.is_behind(call.stream, graph.stream_, graph.launch_);
}

bool Looks::is_through(LookedAt& graph) {
  std::uint64_t launch = 0;
  {
    const std::lock_guard lock(mutex_);
    if (graph.begun_ != 0) return false;
    if (!graph.running_) return true;
    launch = graph.launch_;
  }
  if (!graph.is_through()) return false;
  const std::lock_guard lock(mutex_);
  if (graph.begun_ != 0 || graph.launch_ != launch) return false;
  graph.running_ = false;
  return true;
}

bool Looks::may_launch(const DriverApi& driver, LookedAt& graph, const StreamRef& stream, bool may_ask) {
  const std::lock_guard lock(mutex_);
  any_.store(true, std::memory_order_seq_cst);  // whoever comes from now on is held against the graph
  of_launches(stream);
  const bool news = !graph.was_launched_;
  graph.was_launched_ = true;
  const CurrentContext current(driver, graph.made_in());
  const bool looked_at = onlookers_.any(driver, news, may_ask, [&](const StreamRef& other) {
    return are_in_order(other, stream, graph.made_in(), context_);
  });
  if (!looked_at) ++graph.begun_;
  return !looked_at;
}

void Looks::launched(LookedAt& graph, const StreamRef& stream, bool alone, bool good, bool in_our_order) {
  const std::lock_guard lock(mutex_);
  if (alone) --graph.begun_;
  if (!good) return;
  graph.running_ = graph.running_ || in_our_order;
  if (!graph.running_) return;
  // Launches of one graph come one after another: what comes on this stream now comes after those before, too.
  graph.stream_ = stream;
  graph.launch_ = ++launches_;
}

bool Looks::is_of_launches(const StreamRef& stream) const {
  return std::ranges::find(streams_, stream.key) != streams_.end();
}

void Looks::of_launches(const StreamRef& stream) {
  if (is_of_launches(stream)) return;
  const auto free = std::ranges::find(streams_, std::uint64_t{0});
  onlookers_.has_been(stream);
  if (free != streams_.end()) *free = stream.key;  // else nothing is known to be behind what is launched there
  const std::uint64_t before = only_stream_.load(std::memory_order_relaxed);
  only_stream_.store(before == 0 ? stream.key : kSeveral, std::memory_order_seq_cst);
}

void Looks::ordered(const Call& call, bool records) {
  if (!any_.load(std::memory_order_acquire) || !call.has_stream || !is_op(call.kind)) return;
  const bool known = onlookers_.knows(call.event) || onlookers_.knows(call.event2);
  if (call.kind != CallKind::event_record && !known && !records) return;
  const std::lock_guard lock(mutex_);
  if (records) return onlookers_.forget_events();
  switch (call.kind) {
    case CallKind::event_record:
      if (is_of_launches(call.stream)) return onlookers_.recorded(call.event, call.stream, launches_);
      return onlookers_.recorded_outside(call.event, call.stream);
    case CallKind::event_wait:
      onlookers_.waits(call.stream, call.event);
      if (is_of_launches(call.stream)) onlookers_.work_waits(call.event);
      return;
    default:
      onlookers_.forget(call.event);
      onlookers_.forget(call.event2);
  }
}

void Looks::ends(const DriverApi* driver, const Call& call) {
  if (!any_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (call.ends == Ends::event) onlookers_.forget(call.event);
  if (call.kind == CallKind::context_end || call.ends == Ends::green_context) onlookers_.context_gone();
  if (call.ends != Ends::stream) return;
  std::ranges::replace(streams_, call.stream.key, std::uint64_t{0});
  if (only_stream_.load(std::memory_order_relaxed) == call.stream.key)
    only_stream_.store(kSeveral, std::memory_order_seq_cst);
  onlookers_.ends(driver, call.stream);
}

}  // namespace nimble::shim
