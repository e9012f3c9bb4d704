// The streams beside those of some work of ours, and how far their ops and that work are in order.
//
// The work is graphs, launched in an order that the program has not given their ops. Whoever touches the same memory
// meanwhile could see that: so it matters whether such an op may run at the same time. Of each stream that ops come on
// it is kept how many are on their way to the driver, whether some that the driver has had may still be running, and
// behind which launch of the work the stream has been put by an event; and of some events, whose record they are. An
// order that is made by way of a third stream is not seen, and counts as none.
//
// Streams are found and counted without a lock, by any thread; all else is under the owner's. Owns its probes, which
// are recorded on the program's streams, and keeps them as long as the process runs. Allocates nothing once built.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "nimble/call.h"
#include "replayer/driver_api.h"

namespace nimble {

// Whether the driver keeps all on the one stream in order with all on the other: they are one, or one is the legacy
// stream of `of`, the context of the other, which blocks.
bool are_in_order(const StreamRef& one, const StreamRef& other, CUcontext of, CallContext& context);

class Onlookers {
 public:
  static constexpr std::size_t kMostStreams = 64, kMostEvents = 64;

  // --- Any thread, without a lock.

  // The call's op is on its way to the driver. Where there is no room for its stream, crowded() says so from then on.
  void arrives(Call& call);
  // The driver has had it. Where it looks, it may meet the work until it is through.
  void landed(const Call& call);
  // On this stream there have been ops.
  void has_been(const StreamRef& stream);
  bool crowded() const { return crowded_.load(std::memory_order_acquire); }
  void crowd() { crowded_.store(true, std::memory_order_release); }
  // Whether ops that look have been on the stream.
  bool was_looked_from(const StreamRef& stream) const;
  // Whether something is known of the event.
  bool knows(CUevent event) const;

  // --- Under the lock.

  // The call, which is on its way, looks: it may meet the work.
  void looks(Call& call);
  // The event was recorded behind launch `launch` of the work, which is on `work`.
  void recorded(CUevent event, const StreamRef& work, std::uint64_t launch);
  // It was recorded on another stream, or nobody knows where.
  void recorded_outside(CUevent event, const StreamRef& stream);
  void forget(CUevent event);
  void forget_events();
  // A stream waits for the event, which is as of now: one of the others, or the one of the work.
  void waits(const StreamRef& stream, CUevent event);
  void work_waits(CUevent event);
  // Whether what comes on the stream comes behind that launch.
  bool is_behind(const StreamRef& stream, const StreamRef& work, std::uint64_t launch) const;

  // Whether, on some stream that is none of the work's own, something may be on its way or running that the work could
  // meet. `news`: the work has memory by now that no op was held against so far, so any may. Asks the driver, unless
  // `may_ask` is false, with a context current in which events can be made.
  bool any(const DriverApi& driver, bool news, bool may_ask, const std::function<bool(const StreamRef&)>& is_own);
  // Those that ops have been on.
  template <class Visit>
  void each(Visit visit) const {
    for (const Stream& stream : streams())
      if (const std::uint64_t key = stream.key.load(std::memory_order_acquire); key != 0)
        visit(StreamRef{stream.handle.load(std::memory_order_acquire), key});
  }
  // The stream is about to end, and it does not matter what is on it.
  void forget(const StreamRef& stream);
  // The stream is about to end. `driver`: null where it may not be asked.
  void ends(const DriverApi* driver, const StreamRef& stream);
  // A context is about to go, with what runs in it; and that in which the probes were made is gone.
  void context_gone();
  void abandon();

 private:
  struct Stream {
    std::atomic<std::uint64_t> key{0};
    std::atomic<CUstream> handle{nullptr};
    std::atomic<std::uint32_t> in_flight{0}, looking{0};  // the latter of the former
    std::atomic<bool> used{false};                        // something has had it that the host has not waited for
    std::atomic<std::uint64_t> landed{0};                 // how often something has that mattered
    // Under the lock: up to which of these it is known that the work cannot meet it, or that it is before the probe.
    std::uint64_t settled = 0;
    bool probed = false;
    bool arriving = false;  // something was in flight when the work got memory that it was not held against
    CUevent probe = nullptr;
    std::uint64_t behind_work = 0, behind_launch = 0;  // the key of the work's stream; 0: behind none
  };
  struct Record {
    std::atomic<CUevent> event{nullptr};
    std::uint64_t stream = 0;  // key
    bool of_work = false;
    std::uint64_t number = 0;  // the launch; or Stream::landed
  };

  const Stream* find(std::uint64_t key) const;
  Stream* find(std::uint64_t key) { return const_cast<Stream*>(std::as_const(*this).find(key)); }
  Stream* find_or_add(const StreamRef& stream);
  Record* find(CUevent event);
  void note(CUevent event, std::uint64_t stream, bool of_work, std::uint64_t number);
  static bool probe(const DriverApi& driver, Stream& stream);

  std::span<Stream> streams() { return {all_.data(), used_.load(std::memory_order_acquire)}; }
  std::span<const Stream> streams() const { return {all_.data(), used_.load(std::memory_order_acquire)}; }

  std::array<Stream, kMostStreams> all_;
  std::atomic<std::size_t> used_{0};  // those behind have never been
  std::array<Record, kMostEvents> records_;
  std::size_t next_record_ = 0;
  std::atomic<bool> crowded_{false};
};

}  // namespace nimble
