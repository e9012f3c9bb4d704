#include "replayer/bystanders/bystanders.h"

#include <algorithm>

#include "nimble/internal/step_paths.h"
#include "replayer/match/op_match.h"

namespace nimble {

Bystanders::Bystanders(const Schedule& schedule, CallContext& context)
    : schedule_(schedule),
      context_(context),
      stream_count_(schedule.streams.size()),
      rests_on_pointers_(schedule.rests_on_pointers()) {
  for (const ScheduleOp& op : schedule.ops) waits_ = waits_ || op.submit == Submit::order;
  const StepPaths paths(schedule);
  for (std::uint32_t kind = 0; kind < paths.kinds(); ++kind) {
    std::vector<bool> seen(schedule.streams.size(), false);
    for (const std::uint32_t op : paths.ops(kind)) {
      if (seen[schedule.ops[op].stream]) continue;
      seen[schedule.ops[op].stream] = true;
      if (std::find(firsts_.begin(), firsts_.end(), op) == firsts_.end()) firsts_.push_back(op);
    }
  }
}

void Bystanders::change_streams(std::span<const StreamRef> streams, std::uint64_t version) {
  bool legacy = false;
  for (std::uint32_t s = 0; s < schedule_.streams.size(); ++s) {
    const StreamRef stream = s < streams.size() ? streams[s] : StreamRef{};
    legacy = legacy || (stream.key && stream.is_legacy());
    streams_[s].store(stream.key, std::memory_order_release);
  }
  legacy_.store(legacy, std::memory_order_release);
  version_ = version;
}

void Bystanders::change_arena(std::uint64_t arena, std::uint64_t bytes) {
  arena_bytes_.store(bytes, std::memory_order_release);
  arena_.store(arena, std::memory_order_release);
}

inline void Bystanders::count(const Call& call) {
  if (!is_op(call.kind) || !call.traced) return;
  if (call.thread >= counters_.size() - 1) {
    counters_.back().ops.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  std::atomic<std::uint64_t>& mine = counters_[call.thread].ops;  // which only this thread writes
  mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::uint64_t Bystanders::ops() const {
  std::uint64_t sum = 0;
  for (const Counter& counter : counters_) sum += counter.ops.load(std::memory_order_relaxed);
  return sum;
}

// Whether the op is on a stream that the player follows, or may make it follow a stream.
inline bool Bystanders::may_be_of_the_step(const Call& call) const {
  if (is_followed(call.stream)) return true;
  if (!is(kOpen)) return false;
  return std::any_of(firsts_.begin(), firsts_.end(),
                     [&](std::uint32_t op) { return could_be(schedule_, context_, op, call); });
}

// Whether the op, now done by the driver, may be the step's last. If no stream is followed the player knows.
inline bool Bystanders::may_close(const Call& call) const { return is(kClosing) && may_be_last(call); }

bool Bystanders::may_be_last(const Call& call) const {
  const auto key = [](const std::atomic<std::uint64_t>& stream) { return stream.load(std::memory_order_acquire); };
  return is_followed(call.stream) ||
         std::all_of(streams_.begin(), streams_.end(), [&](auto& s) { return key(s) == 0; });
}

// Whether the program cannot notice through the call that ops are held: HeldOps::shows() without the part that depends
// on these ops.
inline bool Bystanders::observes_nothing(const Call& call) const {
  return cannot_observe(call) || !holding_.load(std::memory_order_acquire);
}

// Whatever is held.
inline bool Bystanders::cannot_observe(const Call& call) const {
  if (!call.has_stream || call.stream.is_legacy() || legacy_.load(std::memory_order_acquire)) return false;
  // A record by the launch itself: a held record would come after it.
  if (call.event || call.event2) return false;
  switch (call.kind) {
    case CallKind::launch:
    case CallKind::copy:
    case CallKind::set:
    case CallKind::alloc_async:
    case CallKind::free_async:
      return call.host == HostEffect::async;
    case CallKind::stream_synchronize:
      return !is_followed(call.stream);
    default:
      return false;
  }
}

// Whether the player must see the op, or the call's query of a stream, whatever is held.
inline bool Bystanders::concerns_the_step(const Call& call) const {
  if (is_op(call.kind) && may_be_of_the_step(call)) return true;
  // A stream whose work runs in graphs has to catch up with them first.
  if (stream_count_ > 1 && call.has_stream && is_followed(call.stream)) return true;
  const bool records = (call.event || call.event2) && call.kind != CallKind::event_wait;
  if (waits_ && is_op(call.kind) && (records || may_record(call.kind))) return true;
  return rests_on_pointers_ && may_leave_pointers(call.kind);
}

// Notes a release, if the call is one. Whether that succeeded, and is all there is to do.
inline bool Bystanders::note_release(const Call& call) {
  if (call.kind != CallKind::free && call.kind != CallKind::free_async) return true;
  // It may become part of a graph: then it releases nothing now.
  if (call.kind == CallKind::free_async && is(kCapturing)) return false;
  return !in_arena(call.memory.address) && news.push({false, {.base = call.memory.address, .size = call.memory.size}});
}

bool Bystanders::passes(const Call& call) {
  if (call.asked.question == Question::pool) return false;
  if (call.asked.question == Question::memory) {
    if (in_arena(call.memory.address)) return false;
    if (!call.asked.sets && !call.shown) return true;
  }
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
  if (concerns_the_step(call) || !observes_nothing(call)) return false;
  if (is_op(call.kind) && is(kAuditing)) return false;
  if (!note_release(call)) return false;
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
      if (call.memory.kind == MemoryKind::external) return false;  // it ends replay
      // The player may be waiting for the address of an allocation on its stream.
      if (call.kind == CallKind::alloc_async && (may_be_of_the_step(call) || may_close(call))) return false;
      return result != CUDA_SUCCESS ||
             news.push({true, {call.memory.address, call.memory.size, call.memory.kind, false}});
    }
    default:
      if (!is_op(call.kind)) return true;
      if (may_close(call)) return false;
      if (call.of_step && call.kind == CallKind::launch) return false;  // the driver's acceptance may be news
      // From now on graphs have to be ordered after it.
      if (stream_count_ > 1 && is_followed(call.stream)) return false;
      return result == CUDA_SUCCESS || !may_be_of_the_step(call);
  }
}

bool Bystanders::passes_aside(const Call& call) const {
  if (call.asked.question == Question::pool) return arena_.load(std::memory_order_acquire) == 0;
  const bool names_memory = call.asked.question == Question::memory || call.asked.question == Question::handle ||
                            call.kind == CallKind::free || call.kind == CallKind::free_async;
  return !names_memory || !in_arena(call.memory.address);
}

}  // namespace nimble
