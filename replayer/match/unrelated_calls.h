// Tells, without a lock, the calls that are none of the replayed step's business: those of other threads on other
// streams. They pass, and threads that make no others never meet at the replayer's lock; where graphs run in another
// order than the program's, at one that is held for a moment (order/onlookers.h).
//
// The player's state is published here after each of its calls. That a call may be judged by a state that changes at
// the same moment is no harm: the program has given these two calls no order. Where it has, by any means, it has also
// made the state visible.
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <tuple>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/match/memory_news.h"

namespace nimble {

// Whether the call may be this op of the step, as far as its kind and its function tell.
bool could_be(const Schedule& schedule, CallContext& context, std::uint32_t op, const Call& call);

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

  // What the player does at the moment. Under the replayer's lock.
  struct State {
    std::span<const StreamRef> streams = {};  // whose ops it follows, as of StepStreams::live()
    std::uint64_t version = 0;                // by which a change of these is told; 0 where there are none
    bool open = true;                         // ops that begin the step on some stream may be the step's on any
    bool holding = false;                     // ops are held back
    bool capturing = false;                   // some stream of the program's captures
    std::uint64_t arena = 0, arena_bytes = 0;
    bool closing = false;   // the next op that the driver has had on the stream was the step's last
    bool auditing = false;  // memory may be copied back on the stream: others have to wait
    bool operator==(const State& other) const {
      const auto rest = [](const State& s) {
        return std::tie(s.version, s.open, s.holding, s.capturing, s.arena, s.arena_bytes, s.closing, s.auditing);
      };
      return rest(*this) == rest(other);
    }
  };
  void publish(const State& state);

  // Whether the call passes, before the driver sees it. Releases of memory are noted in `news`.
  bool passes(const Call& call);
  // The same once the driver has answered. Allocations are noted in `news`.
  bool passed(const Call& call, CUresult result);
  // The same where replay has stood aside: only memory of the arena still matters.
  bool passes_aside(const Call& call) const;

  // Whether the player follows the stream.
  bool follows(const StreamRef& stream) const { return is_followed(stream); }

  // Ops that passed here.
  std::uint64_t ops() const;

  MemoryNews news;

 private:
  bool observes_nothing(const Call& call) const;
  bool is_followed(const StreamRef& stream) const;
  bool may_be_of_the_step(const Call& call) const;
  bool concerns_the_step(const Call& call) const;
  bool note_release(const Call& call);
  bool may_close(const Call& call) const;
  bool in_arena(std::uint64_t address) const {
    const std::uint64_t arena = arena_.load(std::memory_order_acquire);
    return arena && address - arena < arena_bytes_.load(std::memory_order_acquire);
  }
  void count(const Call& call);

  const Schedule& schedule_;
  CallContext& context_;
  std::vector<std::uint32_t> firsts_;  // the first op of each stream, in each kind of step
  bool waits_ = false;                 // some op's meaning rests on who has recorded an event last
  const bool rests_on_pointers_;       // Schedule::rests_on_pointers()
  State published_;                    // under the replayer's lock
  std::array<std::atomic<std::uint64_t>, kMaxStreams> streams_{};  // StreamRef::key; 0: none
  std::atomic<std::uint64_t> arena_{0}, arena_bytes_{0};
  std::atomic<bool> open_{true}, legacy_{false}, holding_{false}, capturing_{false}, closing_{false}, auditing_{false};

  // Spread over cache lines by thread, so that counting does not make threads wait for each other.
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> ops{0};
  };
  std::array<Counter, 16> counters_;
};

}  // namespace nimble
