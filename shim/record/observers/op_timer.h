// Finds out when the GPU ran the recorded ops, and how many there were: by CUPTI until the program makes its first CUDA
// graph, by pairs of events from then on.
//
// CUPTI breaks programs that use graphs: with graph-level tracing and tracing of copies at once, CUPTI 13.0 makes later
// launches of a graph fault (docs/explanation/interception.md says how that was found). A recording must not kill what
// it records, so no graph is ever made or launched while CUPTI collects activities: it stops before the call that
// begins the first one, whatever its version. Its callbacks, which only count calls, go on.
//
// One lock, held while the source changes, and never around one of the program's calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "nimble/internal/call.h"
#include "shim/options/timing.h"
#include "shim/record/facts/coverage.h"
#include "shim/record/observer.h"
#include "shim/record/observers/cupti/cupti_profiler.h"
#include "shim/record/observers/events/event_timer.h"

namespace nimble::shim {

class OpTimer final : public RecordObserver {
 public:
  // `context` must outlive it.
  OpTimer(Timing timing, bool coverage, CallContext& context);
  ~OpTimer() override { OpTimer::stop(); }

  // Returns whether CUPTI is in the process from now on. `times` must not throw.
  bool start(const Times& times) override;
  // Hands over the times known by now, and releases CUPTI.
  void stop() override;

  void comes(const Call& call) override {
    if (!graphs_.load(std::memory_order_acquire) && makes_graphs(call)) [[unlikely]]
      graph_comes();
  }
  void before(const Call& call, std::uint64_t seq, const std::atomic<bool>& any_captures) override;
  void after(const Call& call, CUresult result, std::uint64_t seq, Observed& observed) override;
  // Adds what CUPTI has counted, and where times came from.
  void sum_up(Summary& summary) const override;

 private:
  // Another profiler in the program is about to use CUPTI, which admits one client per process: the timer that has it
  // releases it. Any thread, any process.
  static void give_way() noexcept;
  static bool takes_time(CallKind kind);
  static bool makes_graphs(const Call& call);
  void graph_comes();
  void let_go();
  void use_events();

  const Timing timing_;
  const bool coverage_;
  CallContext& context_;
  std::atomic<bool> graphs_{false};  // the program has made one, or is about to; CUPTI's activities are off by then
  std::atomic<EventTimer*> timer_{nullptr};  // events_ once it is ready

  mutable std::mutex mutex_;  // guards all below
  std::unique_ptr<CuptiProfiler> cupti_;
  std::unique_ptr<EventTimer> events_;  // active once timer_ says so
  bool started_ = false, stopped_ = false, gave_way_ = false;
  std::string why_not_counted_;
  TimeSource source_ = TimeSource::none;
  std::string why_source_;
};

}  // namespace nimble::shim
