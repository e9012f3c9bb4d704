// Recognises, without a lock, the calls that do not concern the replayed step: those of other threads on other streams.
// They pass, and threads that make only such calls never contend for the replayer's lock; if graphs run in an order
// other than the program's, they take one that is held briefly (replayer/onlookers/onlookers.h).
//
// The player's state is published here after each of its calls. Judging a call by a state that changes at the same
// moment is harmless: the program has not ordered these two calls. If it has, by any means, that also makes the state
// visible.
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <tuple>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/bystanders/memory_news.h"

namespace nimble {

// Whether an op of the kind may record events that its call does not name.
inline constexpr bool may_record(CallKind kind) { return kind == CallKind::graph_launch || kind == CallKind::opaque; }

// Whether it may leave pointers in memory for kernels to follow.
inline constexpr bool may_leave_pointers(CallKind kind) {
  return kind == CallKind::launch || kind == CallKind::copy || kind == CallKind::host_function ||
         kind == CallKind::graph_launch || kind == CallKind::opaque;
}

class Bystanders {
 public:
  // Both must outlive this.
  Bystanders(const Schedule& schedule, CallContext& context);

  // The player's present state. Under the replayer's lock.
  struct State {
    std::span<const StreamRef> streams = {};  // whose ops it follows, as in StepStreams::live()
    std::uint64_t version = 0;                // changes with these; 0 if there are none
    bool open = true;                         // ops that begin the step on some stream may be the step's on any
    bool holding = false;                     // ops are held
    bool capturing = false;                   // some program stream captures
    std::uint64_t arena = 0, arena_bytes = 0;
    bool closing = false;   // the next op that the driver finishes on the stream was the step's last
    bool auditing = false;  // memory may be restored on the stream: others have to wait
    bool operator==(const State& other) const {
      const auto rest = [](const State& s) {
        return std::tuple(s.version, s.flags(), s.holding, s.arena, s.arena_bytes);
      };
      return rest(*this) == rest(other);
    }
    unsigned flags() const {  // all but `holding`
      return (open ? kOpen : 0u) | (capturing ? kCapturing : 0u) | (closing ? kClosing : 0u) |
             (auditing ? kAuditing : 0u);
    }
  };
  // Stores only what has changed: a store costs every other thread a cache miss.
  void publish(const State& state) {
    if (state.version != version_) change_streams(state.streams, state.version);
    if (state.arena != arena_.load(std::memory_order_relaxed)) change_arena(state.arena, state.arena_bytes);
    const unsigned flags = state.flags();
    if (flags != flags_.load(std::memory_order_relaxed)) flags_.store(flags, std::memory_order_release);
    if (state.holding != holding_.load(std::memory_order_relaxed))
      holding_.store(state.holding, std::memory_order_release);
  }

  // Whether the call passes, before the driver sees it. Notes releases of memory in `news`.
  bool passes(const Call& call);
  // The same once the driver has answered. Notes allocations in `news`.
  bool passed(const Call& call, CUresult result);
  // The same once replay has stood aside: only memory of the arena still matters.
  bool passes_aside(const Call& call) const;

  // Whether the player follows the stream.
  bool follows(const StreamRef& stream) const { return is_followed(stream); }

  // Ops that passed here.
  std::uint64_t ops() const;

  MemoryNews news;

 private:
  enum Flag : unsigned { kOpen = 1, kCapturing = 2, kClosing = 4, kAuditing = 8 };

  void change_streams(std::span<const StreamRef> streams, std::uint64_t version);
  void change_arena(std::uint64_t arena, std::uint64_t bytes);
  bool is(Flag flag) const { return (flags_.load(std::memory_order_acquire) & flag) != 0; }
  bool observes_nothing(const Call& call) const;
  bool cannot_observe(const Call& call) const;
  bool is_followed(const StreamRef& stream) const {
    for (std::size_t s = 0; s < stream_count_; ++s)
      if (streams_[s].load(std::memory_order_acquire) == stream.key) return stream.key != 0;
    return false;
  }
  bool may_be_of_the_step(const Call& call) const;
  bool concerns_the_step(const Call& call) const;
  bool note_release(const Call& call);
  bool may_close(const Call& call) const;
  [[gnu::noinline]] bool may_be_last(const Call& call) const;
  bool in_arena(std::uint64_t address) const {
    const std::uint64_t arena = arena_.load(std::memory_order_acquire);
    return arena && address - arena < arena_bytes_.load(std::memory_order_acquire);
  }
  void count(const Call& call);

  const Schedule& schedule_;
  CallContext& context_;
  const std::size_t stream_count_;         // of the schedule
  std::vector<std::uint32_t> firsts_;      // the first op of each stream, in each kind of step
  bool waits_ = false;                     // some op depends on what last recorded an event
  const bool rests_on_pointers_;           // Schedule::rests_on_pointers()
  alignas(64) std::uint64_t version_ = 0;  // of the streams; under the replayer's lock

  // Changes several times in a step, so most calls do not read it.
  alignas(64) std::atomic<bool> holding_{false};

  // What each call reads.
  alignas(64) std::atomic<unsigned> flags_{kOpen};  // State::flags
  std::atomic<bool> legacy_{false};
  std::atomic<std::uint64_t> arena_{0}, arena_bytes_{0};
  std::array<std::atomic<std::uint64_t>, kMaxStreams> streams_{};  // StreamRef::key; 0: none

  // Each of the first threads has its own, on a cache line of its own; the others share the last.
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> ops{0};
  };
  std::array<Counter, 32> counters_;
};

}  // namespace nimble
