// The program's streams that a step uses: which one stands for which of the schedule's, and how they are ordered with
// the graphs.
//
// Graphs are launched on the first stream, the launch stream. An op that goes to another stream individually is ordered
// after the graphs launched before, and the next graph after it: by events, and only if needed, so that steps that
// consist of graphs alone cost one event record each. A schedule of one stream needs none.
//
// Work that the program puts on these streams outside of its steps may be waiting for anything. A graph must not wait
// for it unless the program's own order says so: settled() tells when that cannot happen.
//
// Owns its events, which it makes as needed and keeps for the life of the process. Makes driver calls with the step's
// context current. Not synchronised: the replayer's lock guards it. Errors: the driver's CUresult, after ordering by a
// host wait instead.
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

  // The schedule's stream that it stands for; kNone for none.
  std::uint32_t find(const StreamRef& stream) const {
    for (std::uint32_t s = 0; s < count_; ++s)
      if (live_[s].key == stream.key) return s;
    return kNone;
  }
  const StreamRef& operator[](std::uint32_t s) const { return live_[s]; }
  const StreamRef& launch() const { return live_[0]; }
  bool has(std::uint32_t s) const { return live_[s].key != 0; }
  // All of them, in the schedule's order; key 0 for those without one.
  std::span<const StreamRef> live() const { return {live_.data(), count_}; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(count_); }
  // Whether it could: by its kind of ordering with others, if that matters.
  bool could_be(std::uint32_t s, const StreamRef& stream) const;
  // From now on it does; the previous one is released, in order.
  void set(std::uint32_t s, const StreamRef& stream);
  // The stream is about to end; or all become unknown.
  void ends(std::uint32_t s);
  void forget();
  // Rises with every change of all this.
  std::uint64_t version() const { return version_; }

  // --- Order.

  // The step's context from now on; or the current one, false if there is none.
  void use_context(CUcontext context) { context_ = context; }
  bool use_current_context();
  // Whether the calling thread's calls go to the step's context. In another one, or in none, the driver refuses some.
  bool context_is_current() const;
  // The step's context; null before the first.
  CUcontext context() const { return context_; }
  // Orders the stream after the graphs: before the program waits for it, or queries it.
  CUresult catch_up(std::uint32_t s);
  // The driver is about to get an individual op on the stream, from us or from the program.
  CUresult individually(std::uint32_t s);
  // The same for an op that is not the step's. `may_wait`: it may be waiting for something.
  CUresult outside(std::uint32_t s, bool may_wait);
  // The op of individually() or outside() has reached the driver. Another thread's call may have come in between, and
  // considered the stream gathered or settled without it.
  void landed(std::uint32_t s, bool may_wait) {
    all_[s].ahead = true;
    all_[s].outside = all_[s].outside || may_wait;
  }
  // Orders the launch stream after all work of the others. Before a graph launch.
  CUresult gather();
  // A graph was launched: later individual ops on the others must be ordered after it.
  CUresult launched() { return count_ == 1 ? CUDA_SUCCESS : mark(); }
  // Steps are ordered after each other, on whatever streams their ops are: before the first op of one that runs as
  // graphs.
  CUresult begin_step();
  // Orders the launch stream after all events passed to later().
  CUresult follow_due();
  // The next such step must also follow the event, which is taken over.
  void later(CUevent event) { due_.push_back(event); }
  // Whether graphs may be ordered after the streams' work from outside of steps. Asks the driver.
  bool settled();
  // Whether the launch stream may be capturing.
  bool launch_captures() const;
  // Releases all streams.
  CUresult release();
  // The context is gone, with all events.
  void abandon();

 private:
  struct Stream {
    std::uint64_t after_mark = 0;  // the mark that it is ordered after
    bool ahead = false;            // it has work that the launch stream is not ordered after
    bool outside = false;          // it has work from outside that may be waiting, without a probe after it
    bool probed = false;           // `probe` was recorded after such work
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
