// Which of the program's ops come before which, by the order that the program itself makes: of its streams, by events,
// by the legacy stream, and by what its host has waited for. Whatever is not known to be in order counts as in none.
//
// Vector clocks (C. Fidge, 1988; F. Mattern, 1989), of one component a stream: how many of its ops are before a point.
// A call takes effect at some moment between when it is on its way to the driver and when the driver has had it, and
// other threads' calls come in between: so each is told twice. What a call makes known is what held when it was on its
// way, and holds once the driver has had it.
//
// Ops that need not be told apart take no lock: those that a stream got since it was last looked at count as one op,
// its last one so far. The same holds for those of one owner that come through a gate.
//
// Guarded by its owner's lock, but for what says that it takes none. Allocates nothing once built: of more streams,
// events or calls at a time than there is room for, nothing is known.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble {

class StreamClocks {
 public:
  static constexpr std::size_t kMostStreams = 64, kMostEvents = 256, kMostCalls = 48, kMostGates = 64;

  struct Stream {
    StreamRef ref;
    StreamKind kind = StreamKind::blocking;
    std::uint64_t context = 0;  // tells contexts apart
  };
  // A call that orders others and is on its way to the driver; 0 where nothing will be known by it. Each is to be ended
  // once.
  using Token = std::uint32_t;
  // The `number`th op of a stream, from 1; 0 where nothing is known of it.
  struct Op {
    std::uint32_t slot = 0;
    std::uint64_t number = 0;
    Token token = 0;
  };

  // So many ops of each slot. Copying one costs as much as the slots that have been used.
  class Clock {
   public:
    Clock() = default;
    Clock(const Clock& other) { *this = other; }
    Clock& operator=(const Clock& other) {
      std::copy_n(other.numbers_.begin(), other.used_, numbers_.begin());
      used_ = other.used_;
      return *this;
    }
    std::uint64_t operator[](std::size_t slot) const { return slot < used_ ? numbers_[slot] : 0; }
    void raise(std::size_t slot, std::uint64_t number) {
      while (used_ <= slot) numbers_[used_++] = 0;
      numbers_[slot] = std::max(numbers_[slot], number);
    }
    void join(const Clock& other) {
      for (std::size_t slot = 0; slot < other.used_; ++slot) raise(slot, other.numbers_[slot]);
    }
    // Whether the other has all that this has.
    bool is_within(const Clock& other) const {
      for (std::size_t slot = 0; slot < used_; ++slot)
        if (numbers_[slot] > other[slot]) return false;
      return true;
    }

   private:
    std::array<std::uint64_t, kMostStreams> numbers_;  // those from used_ on are 0, and hold nothing
    std::size_t used_ = 0;
  };
  static bool has(const Clock& clock, Op op) { return op.number != 0 && clock[op.slot] >= op.number; }

  static constexpr std::uint32_t kNoSlot = kMostStreams;

  // The ops that enter without the lock at one place. One at a time costs an instruction; more at a time, two.
  class Passing {
   public:
    // Whoever holds the lock sees an op that has entered. Returns whether there are others, as left() has to be told.
    bool enter() {
      const bool crowded = busy_.exchange(true, std::memory_order_seq_cst);
      if (crowded) more_.fetch_add(1, std::memory_order_seq_cst);
      come();
      return crowded;
    }
    // Enters where no other one is under way.
    bool enter_alone() {
      if (busy_.exchange(true, std::memory_order_seq_cst)) return false;
      come();
      return true;
    }
    void leave(bool crowded = false) {
      if (crowded) {
        more_.fetch_sub(1, std::memory_order_release);
      } else {
        busy_.store(false, std::memory_order_release);
      }
    }
    // Whether some have entered and have not left.
    bool is_busy() const { return busy_.load(std::memory_order_seq_cst) || more_.load(std::memory_order_seq_cst) != 0; }

   private:
    friend class StreamClocks;
    // Each op would take the cache line for itself if it stored what is there.
    void come() {
      if (!any_.load(std::memory_order_seq_cst)) any_.store(true, std::memory_order_seq_cst);
    }
    // Whether some have entered since take_any() was last asked. is_busy() tells of those only if it is asked later.
    bool has_any() const { return any_.load(std::memory_order_seq_cst); }
    bool take_any() { return has_any() && any_.exchange(false, std::memory_order_seq_cst); }

    std::atomic<bool> busy_{false}, any_{false};
    std::atomic<std::uint32_t> more_{0};
  };

  // A way past the lock for the ops of one owner, all on one stream, one at a time.
  class alignas(64) Gate {
   public:
    // An op of the stream begins by it, on any thread; then leave() has to follow. False where the gate is not open for
    // the stream, or another op is in it.
    bool enter(const StreamRef& stream) {
      if (stream.key == 0 || open_for_.load(std::memory_order_relaxed) != stream.key) return false;
      if (!passing_.enter_alone()) return false;
      if (open_for_.load(std::memory_order_seq_cst) == stream.key) return true;
      passing_.leave();
      return false;
    }
    void leave() { passing_.leave(); }
    bool is_open() const { return open_for_.load(std::memory_order_seq_cst) != 0; }
    // Whether an op is in it.
    bool is_busy() const { return passing_.is_busy(); }

   private:
    friend class StreamClocks;
    std::atomic<std::uint64_t> open_for_{0};  // a stream's key; 0: closed
    Passing passing_;
    // Guarded by the lock.
    std::uint32_t slot_ = kNoSlot;
    std::uint64_t last_ = 0;  // the number that stands for those that have entered, on that slot
    bool taken_ = false;
  };

  StreamClocks();

  // Slots from here on have never been used.
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  // Whether the stream has been seen, so that its kind and its context need not be told.
  bool knows(const StreamRef& stream) const { return find(stream.key) != kNone; }

  // An op is on its way; the driver has had it, with success or without.
  Op arrives(const Stream& stream);
  void landed(Op op, bool good);

  // The same without the lock, on any thread, for an op of a stream that has a slot.
  std::uint32_t slot_of(const StreamRef& stream) const { return find(stream.key); }
  bool is_slot_of(std::uint32_t slot, const StreamRef& stream) const {
    return keys_[slot].load(std::memory_order_seq_cst) == stream.key;
  }
  Passing& passing(std::uint32_t slot) { return streams_[slot].passing; }
  // Whether the legacy stream orders it with another one, so that its ops tell of others' and have to be told apart.
  bool is_joined(std::uint32_t slot) const { return streams_[slot].joined.load(std::memory_order_acquire); }
  // What stands for all that have entered so far, where not all is known to be through: else its number is 0.
  Op entered(std::uint32_t slot);

  // A gate for a new owner, closed; null if there are no more. It is the owner's until give_back(), when no op may be
  // in it.
  Gate* take_gate();
  void give_back(Gate& gate);
  // Opens it for the stream of an op that has landed, unless the stream's ops have to be told apart, or an op is in it
  // that is of another stream.
  void open(Gate& gate, Op op);
  // What enters from now on finds it closed; what entered before is seen by entered().
  static void close(Gate& gate);
  // What stands for all that have entered by it since it is for this stream; its number is 0 where none have.
  Op entered(Gate& gate);
  // Of the stream that it is for; kNoSlot for none.
  static std::uint32_t slot_of(const Gate& gate) { return gate.slot_; }

  Token records(CUevent event, const Stream& stream);
  Token waits(const Stream& stream, CUevent event);
  // The host does, or asks whether all has finished. 0 also where it is known to be.
  Token host_waits(const Stream& stream);
  Token host_waits(CUevent event);
  // For the op, which has just arrived and is all that it waits for but what is before it.
  Token host_waits(Op op);
  Token host_waits_for_context(std::uint64_t context);
  // The driver has had that call. `good`: with success; without it nothing is known by it.
  void ended(Token token, bool good);

  // Nothing is known of the event any more, or of any: who has recorded it, and where, is not seen.
  void forget(CUevent event);
  void forget_events();
  // The stream is about to be destroyed; what is on it goes on.
  void ends(const StreamRef& stream);
  // No stream that was seen is one that comes any more.
  void forget_streams();
  // With its context all that was on its way in it has gone.
  void context_ends(std::uint64_t context);

  // What is known to be before the stream's last op, and it; not what comes of the order of the legacy stream for the
  // next one.
  Clock so_far(const Stream& stream);
  // What is known to be through before anything begins that comes on the stream from now on.
  Clock before(const Stream& stream);
  bool is_before(Op op, const Stream& stream) { return has(before(stream), op); }
  // What is known to be through.
  const Clock& done() const { return done_; }
  bool is_done(Op op) const { return has(done_, op); }

 private:
  static constexpr std::uint32_t kNone = kNoSlot;

  struct alignas(64) OfStream {
    Passing passing;
    std::atomic<bool> joined{false};  // see is_joined(); stays
  };
  struct Slot {
    StreamKind kind = StreamKind::blocking;
    std::uint64_t context = 0;
    Clock clock;                // of what was before its last op; of its own ops see own()
    std::uint64_t arrived = 0;  // never falls, whatever streams the slot is of
    std::uint32_t open = 0;     // ops on their way
    std::uint64_t first_open = 0;
    std::uint64_t entered = 0;  // the number of the last one that stands for ops that have entered, but by no gate
    bool lingers = false;       // one that stands for such, or for those by a gate, is one of `open`

    // So many of its ops are before what is submitted now.
    std::uint64_t own() const { return open == 0 ? arrived : first_open - 1; }
  };
  struct Event {
    std::uint64_t version = 0;
    bool known = false;
    Clock clock;
  };
  struct Pending {
    enum class What : std::uint8_t { none, op, record, wait, host };
    What what = What::none;
    CUevent event = nullptr;
    std::uint64_t version = 0;  // of the event
    std::uint32_t slot = kNone;
    std::uint64_t key = 0;  // of the stream
    Clock clock;            // what holds if it ends well
  };

  std::uint32_t find(std::uint64_t key) const {
    const std::size_t used = key != 0 ? used_.load(std::memory_order_acquire) : 0;
    for (std::uint32_t i = 0; i < used; ++i)
      if (keys_[i].load(std::memory_order_seq_cst) == key) return i;
    return kNone;
  }
  std::uint32_t find_or_add(const Stream& stream);
  void count_entered(std::uint32_t slot);
  bool is_passing(std::uint32_t slot) const;
  void close_gates(std::uint32_t slot = kNone);
  bool is_free(std::uint32_t slot);
  bool join_each_other(std::uint32_t one, std::uint32_t other) const;
  Clock present(std::uint32_t slot);
  Clock before_next(std::uint32_t slot);
  Event* find(CUevent event);
  bool is_known(const Event& event) const { return event.known && event.version > forgotten_; }
  Event& find_or_add(CUevent event);
  Token begin(Pending::What what, CUevent event, std::uint32_t slot, const Clock& clock);
  Token begin_host_wait(CUevent event, std::uint32_t slot, const Clock& clock) {
    return clock.is_within(done_) ? 0 : begin(Pending::What::host, event, slot, clock);
  }

  // Each op reads these: they share no cache line with what calls under the lock write.
  alignas(64) std::atomic<std::size_t> used_{0};                 // of slots_
  std::array<std::atomic<std::uint64_t>, kMostStreams> keys_{};  // by slot; 0: of no stream, or of one that has ended
  std::array<OfStream, kMostStreams> streams_;                   // by slot
  std::array<Gate, kMostGates> gates_;
  std::size_t gates_used_ = 0;  // those from here on have never been taken
  std::vector<Slot> slots_;
  std::array<CUevent, kMostEvents> event_names_{};  // looked through for each of their calls
  std::vector<Event> events_;                       // likewise
  std::vector<Pending> pending_;
  Clock done_;  // so many ops of each have finished
  std::uint64_t version_ = 0;
  std::uint64_t forgotten_ = 0;  // of events of versions up to this nothing is known
  std::size_t next_event_ = 0;
  std::size_t records_ = 0;  // of pending_
  bool blind_ = false;       // to events: a record has found no room
};

}  // namespace nimble
