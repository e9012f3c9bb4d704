// The program's streams that a step uses: which stands for which of the schedule's, and what keeps them in order with
// the graphs.
//
// Graphs are launched on the first stream, the launch stream. Where the driver gets something on another one by itself,
// that comes behind the graphs launched before, and the next graph comes behind it: by events, and only where it is
// needed, so that steps that go as graphs alone cost one event record for each. A schedule of one stream needs none.
//
// What the program puts on these streams outside of its steps may be waiting for anything. A graph must not be put
// behind it where the program has not: settled() tells when that cannot happen.
//
// Owns its events, which it makes as they are needed and keeps as long as the process runs. Driver calls are made with
// the step's context current. Not synchronised: the replayer's lock guards it. Errors: the driver's CUresult, and then
// the order was made by waiting for the stream instead.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class StepStreams {
 public:
  StepStreams(const Schedule& schedule, CallContext& context, const DriverApi& driver)
      : calls_(context), driver_(driver), schedule_(schedule), count_(schedule.streams.size()) {
    for (const ScheduleStream& stream : schedule.streams) all_forked_ = all_forked_ && stream.forked;
  }

  // --- Which is which.

  // The schedule's stream for which it stands; kNone for none.
  std::uint32_t find(const StreamRef& stream) const {
    for (std::uint32_t s = 0; s < count_; ++s)
      if (live_[s].key == stream.key) return s;
    return kNone;
  }
  const StreamRef& operator[](std::uint32_t s) const { return live_[s]; }
  const StreamRef& launch() const { return live_[0]; }
  bool has(std::uint32_t s) const { return live_[s].key != 0; }
  // All of them, in the schedule's order; of those that have none, the key is 0.
  std::span<const StreamRef> live() const { return {live_.data(), count_}; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(count_); }
  // Whether it could: by how it is ordered with others, where that matters.
  bool could_be(std::uint32_t s, const StreamRef& stream) const;
  // From now on it does; the one that did so far is let go in order.
  void set(std::uint32_t s, const StreamRef& stream);
  // The stream is about to end; or no more is known of any.
  void ends(std::uint32_t s);
  void forget();
  // Rises with every change of all this.
  std::uint64_t version() const { return version_; }

  // --- Order.

  // The step's from now on; or the one that is current, false where there is none.
  void use_context(CUcontext context) { context_ = context; }
  bool use_current_context();
  // The step's; null before the first one.
  CUcontext context() const { return context_; }
  // The stream comes behind the graphs: before the program waits for it, or asks about it.
  CUresult catch_up(std::uint32_t s);
  // The driver is about to get something on the stream by itself, from us or from the program.
  CUresult individually(std::uint32_t s);
  // The same, and it is none of the step's ops. `may_wait`: it may be waiting for something.
  CUresult outside(std::uint32_t s, bool may_wait);
  // What individually() and outside() spoke of has reached the driver. Another thread's call may have come in between,
  // and taken the stream for gathered or settled without it.
  void landed(std::uint32_t s, bool may_wait) {
    all_[s].ahead = true;
    all_[s].outside = all_[s].outside || may_wait;
  }
  // The launch stream comes behind all that the others have got. Before a graph is launched.
  CUresult gather();
  // A graph was launched: what the others get by themselves comes behind it.
  CUresult launched() { return count_ == 1 ? CUDA_SUCCESS : mark(); }
  // Steps follow each other, on whatever streams their ops are: before the first op of one that graphs stand for.
  CUresult begin_step();
  // The launch stream comes behind all events that later() has taken.
  CUresult come_behind_due();
  // The next such step comes behind the event, too, which is taken over.
  void later(CUevent event) { due_.push_back(event); }
  // Whether graphs may be put behind what the streams have got from outside of steps. Asks the driver.
  bool settled();
  // Whether the launch stream captures, as far as can be told.
  bool launch_captures() const;
  // All streams are on their own from here on.
  CUresult release();
  // The context is gone, with all events.
  void abandon();

 private:
  struct Stream {
    std::uint64_t behind = 0;  // the mark that it is behind
    bool ahead = false;        // it has something that the launch stream is not behind
    bool outside = false;      // it has something from outside that may be waiting, and that no probe is behind
    bool probed = false;       // `probe` is behind such a thing
    CUevent tail = nullptr, probe = nullptr;
  };

  CUresult gather(std::uint32_t s);
  CUresult mark();
  CUresult record(CUevent& event, const StreamRef& stream);
  CUresult wait_instead(const StreamRef& stream, CUresult error);
  bool is_settled(std::uint32_t s);

  CallContext& calls_;
  const DriverApi& driver_;
  const Schedule& schedule_;
  const std::size_t count_;
  bool all_forked_ = true;
  std::array<StreamRef, kMaxStreams> live_;
  std::array<Stream, kMaxStreams> all_;
  CUcontext context_ = nullptr;
  std::vector<CUevent> due_;  // see later()
  CUevent mark_ = nullptr;    // on the launch stream
  std::uint64_t marks_ = 0;   // recorded so far
  std::uint64_t version_ = 1;
};

}  // namespace nimble
