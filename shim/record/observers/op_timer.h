// When the GPU ran the recorded ops, and how many ops there were: CUPTI until the program makes its first CUDA graph,
// pairs of events from then on.
//
// CUPTI breaks programs that use graphs: with graph-level tracing and tracing of copies at once, CUPTI 13.0 has later
// launches of a graph fault (docs/interception.md says how that was found). A recording must not kill what it records,
// so no graph is ever made or launched while CUPTI collects activities: it stops before the call that begins the first
// one, whatever its version. Its callbacks, which only count calls, go on.
//
// start() and stop() are called by one thread at a time, the others by any. One lock, held while the source changes,
// and never around a call of the program's. Must be used with the guard entered.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "nimble/internal/call.h"
#include "shim/process/options.h"
#include "shim/record/facts/coverage.h"
#include "shim/record/facts/device_time.h"
#include "shim/record/observers/cupti/cupti_profiler.h"
#include "shim/record/observers/events/event_timer.h"

namespace nimble::shim {

class OpTimer {
 public:
  using HandOver = std::function<void(std::span<const DeviceTime>)>;

  // `hand_over` may be called from any thread, and must not throw.
  OpTimer(Timing timing, bool coverage, CallContext& context, HandOver hand_over);
  ~OpTimer() { stop(); }

  // The first call that traces hold has come: the driver is there. Whether CUPTI is in the process from now on.
  bool start();
  // Hands over what is known by now, and lets CUPTI go. Idempotent.
  void stop();

  // Another profiler of the program's is about to use CUPTI, of which a process has one: whichever timer has it lets it
  // go. Any thread, any process.
  static void give_way() noexcept;

  // Any call is about to go to the driver, whether traces hold it or not.
  void call_comes(const Call& call) {
    if (!graphs_.load(std::memory_order_acquire) && makes_graphs(call)) [[unlikely]]
      graph_comes();
  }
  // The op with this number in the trace is about to go to the driver. `capturing`: some stream captures.
  void begin(const Call& call, std::uint64_t seq, bool capturing);
  // It has gone there; `ticket` is what CUPTI named it by, if it did. Returns what its times will be named by, or 0.
  std::uint64_t end(const Call& call, std::uint64_t seq, bool submitted, std::uint64_t ticket);

  // What CUPTI has counted, and where times came from.
  Coverage coverage() const;

 private:
  static bool takes_time(CallKind kind);
  static bool makes_graphs(const Call& call);
  void graph_comes();
  void let_go();
  void use_events();

  const Timing timing_;
  const bool coverage_;
  CallContext& context_;
  const HandOver hand_over_;
  std::atomic<bool> graphs_{false};  // the program has made one, or is about to; CUPTI's activities are off by then
  std::atomic<EventTimer*> timer_{nullptr};  // events_ once it is ready

  mutable std::mutex mutex_;  // guards all below
  std::unique_ptr<CuptiProfiler> cupti_;
  std::unique_ptr<EventTimer> events_;  // at work once timer_ says so
  bool started_ = false, stopped_ = false, gave_way_ = false;
  std::string why_not_counted_;
  TimeSource source_ = TimeSource::none;
  std::string why_source_;
};

}  // namespace nimble::shim
