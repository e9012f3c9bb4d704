#include "replayer/bystanders.h"

namespace nimble {

bool could_begin(const Schedule& schedule, CallContext& context, const Call& call) {
  if (schedule.ops.empty()) return false;
  const ScheduleOp& first = schedule.ops.front();
  if (call.kind != first.kind) return false;
  // A launch that no graph holds names no function in the schedule: any may be it.
  if (call.kind != CallKind::launch || first.submit != Submit::graph) return true;
  return context.function(call.function).name == schedule.functions[first.function].name;
}

void Bystanders::publish(const State& state) {
  if (state == published_) return;  // a store would cost every other thread a cache miss
  published_ = state;
  stream_.store(state.stream, std::memory_order_release);
  legacy_.store(state.legacy, std::memory_order_release);
  holding_.store(state.holding, std::memory_order_release);
  capturing_.store(state.capturing, std::memory_order_release);
  closing_.store(state.closing, std::memory_order_release);
  auditing_.store(state.auditing, std::memory_order_release);
  arena_bytes_.store(state.arena_bytes, std::memory_order_release);
  arena_.store(state.arena, std::memory_order_release);
}

void Bystanders::count(const Call& call) {
  if (is_op(call.kind) && call.traced)
    counters_[call.thread % counters_.size()].ops.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t Bystanders::ops() const {
  std::uint64_t sum = 0;
  for (const Counter& counter : counters_) sum += counter.ops.load(std::memory_order_relaxed);
  return sum;
}

// Whether the op is on the stream that the player follows, or may be the one that makes it follow a stream.
bool Bystanders::on_followed_stream(const Call& call) const {
  const std::uint64_t followed = stream_.load(std::memory_order_acquire);
  return followed ? call.stream.key == followed : could_begin(schedule_, context_, call);
}

// Whether the program cannot notice by the call that ops are held back: StepPlayer::observes() without what needs a
// look at these ops.
bool Bystanders::observes_nothing(const Call& call) const {
  if (!holding_.load(std::memory_order_acquire)) return true;
  if (!call.has_stream || call.stream.is_legacy() || legacy_.load(std::memory_order_acquire)) return false;
  switch (call.kind) {
    case CallKind::launch:
    case CallKind::copy:
    case CallKind::set:
    case CallKind::alloc_async:
    case CallKind::free_async:
      return call.host == HostEffect::async;
    case CallKind::stream_synchronize:
      return call.stream.key != stream_.load(std::memory_order_acquire);
    default:
      return false;
  }
}

bool Bystanders::passes(const Call& call) {
  if (call.address_range) return !in_arena(call.address);
  if (call.ends != Ends::nothing) return false;
  if (!call.traced) return call.host != HostEffect::observe || observes_nothing(call);
  switch (call.kind) {
    case CallKind::alloc:
      return true;
    case CallKind::hidden:
    case CallKind::context_end:
    case CallKind::capture_begin:
    case CallKind::capture_end:
      return false;
    default:
      break;
  }
  if (is_op(call.kind) && on_followed_stream(call)) return false;
  if (!observes_nothing(call)) return false;
  if (is_op(call.kind) && auditing_.load(std::memory_order_acquire)) return false;
  // It may become part of a graph: then it releases nothing now.
  if (call.kind == CallKind::free_async && capturing_.load(std::memory_order_acquire)) return false;
  if (call.kind == CallKind::free || call.kind == CallKind::free_async) {
    if (in_arena(call.address) || !news.push({false, {.base = call.address, .size = call.size}})) return false;
  }
  count(call);
  return true;
}

bool Bystanders::passed(const Call& call, CUresult result) {
  if (!call.traced) return true;
  switch (call.kind) {
    case CallKind::hidden:
    case CallKind::context_end:
    case CallKind::capture_begin:
    case CallKind::capture_end:
      return false;
    case CallKind::alloc:
    case CallKind::alloc_async: {
      if (call.memory == MemoryKind::external) return false;  // replay ends with it
      // The player may be waiting for the address of an allocation on its stream.
      if (call.kind == CallKind::alloc_async && on_followed_stream(call)) return false;
      return result != CUDA_SUCCESS || news.push({true, {call.address, call.size, call.memory, false}});
    }
    default:
      if (!is_op(call.kind)) return true;
      if (result == CUDA_SUCCESS && !closing_.load(std::memory_order_acquire)) return true;
      return !on_followed_stream(call);
  }
}

bool Bystanders::passes_aside(const Call& call) const {
  const bool names_memory = call.address_range || call.kind == CallKind::free || call.kind == CallKind::free_async;
  return !names_memory || !in_arena(call.address);
}

}  // namespace nimble
