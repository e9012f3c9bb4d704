// Tells, without a lock, the calls that are none of the replayed step's business: those of other threads on other
// streams. They pass, and threads that make no others never meet at a lock.
//
// The player's state is published here after each of its calls. That a call may be judged by a state that changes at
// the same moment is no harm: the program has given these two calls no order. Where it has, by any means, it has also
// made the state visible.
#pragma once

#include <array>
#include <atomic>

#include "nimble/call.h"
#include "nimble/schedule.h"
#include "replayer/memory_news.h"

namespace nimble {

// Whether the op may be the step's first, as far as its kind and its function tell.
bool could_begin(const Schedule& schedule, CallContext& context, const Call& call);

class Bystanders {
 public:
  // Both must outlive this.
  Bystanders(const Schedule& schedule, CallContext& context) : schedule_(schedule), context_(context) {}

  // What the player does at the moment. Under the replayer's lock.
  struct State {
    std::uint64_t stream = 0;  // StreamRef::key of the one stream whose ops it follows; 0: of any that begins the step
    bool legacy = false;       // that stream is the legacy default stream
    bool holding = false;      // ops are held back
    bool capturing = false;    // some stream of the program's captures
    std::uint64_t arena = 0, arena_bytes = 0;
    bool closing = false;   // the next op that the driver has had on the stream was the step's last, which is timed
    bool auditing = false;  // memory may be copied back on the stream: others have to wait
    bool operator==(const State&) const = default;
  };
  void publish(const State& state);

  // Whether the call passes, before the driver sees it. Releases of memory are noted in `news`.
  bool passes(const Call& call);
  // The same once the driver has answered. Allocations are noted in `news`.
  bool passed(const Call& call, CUresult result);
  // The same where replay has stood aside: only memory of the arena still matters.
  bool passes_aside(const Call& call) const;

  // Ops that passed here.
  std::uint64_t ops() const;

  MemoryNews news;

 private:
  bool observes_nothing(const Call& call) const;
  bool on_followed_stream(const Call& call) const;
  bool in_arena(std::uint64_t address) const {
    const std::uint64_t arena = arena_.load(std::memory_order_acquire);
    return arena && address - arena < arena_bytes_.load(std::memory_order_acquire);
  }
  void count(const Call& call);

  const Schedule& schedule_;
  CallContext& context_;
  State published_;  // under the replayer's lock
  std::atomic<std::uint64_t> stream_{0}, arena_{0}, arena_bytes_{0};
  std::atomic<bool> legacy_{false}, holding_{false}, capturing_{false}, closing_{false}, auditing_{false};

  // Spread over cache lines by thread, so that counting does not make threads wait for each other.
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> ops{0};
  };
  std::array<Counter, 16> counters_;
};

}  // namespace nimble
