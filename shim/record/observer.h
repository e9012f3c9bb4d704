// Observers of a recording: optional parts, without which a trace is still complete. Each sees every recorded call
// before and after the driver, and adds what it finds to the call's record.
//
// A recorder owns its observers and calls them in their order before the driver, in the opposite order after it. From
// any thread, with the guard entered; start() comes once, while before() and after() may already run on other threads:
// an observer that is not ready sees nothing. An exception ends the recording; no error of an observer reaches the
// program.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/record/facts/coverage.h"
#include "shim/record/facts/device_time.h"
#include "shim/record/facts/probe_totals.h"

namespace nimble::shim {

// What is known of a call beyond its arguments.
struct Observed {
  std::uint64_t ticket = 0;                            // by which later times name it, if CUPTI gives any; 0: none
  const std::vector<TraceAccess>* accesses = nullptr;  // valid until the thread's next call
};

// How complete the recording is, as far as observers know.
struct Summary {
  Coverage coverage{"NIMBLE_COVERAGE=off", 0, 0, {}, TimeSource::none, {}};
  std::optional<ProbeTotals> probe;
};

class RecordObserver {
 public:
  using Times = std::function<void(std::span<const DeviceTime>)>;

  virtual ~RecordObserver() = default;

  // The first traced call has come: the driver is there. `times` receives when ops ran, from any thread, for as long as
  // the observer lives. Returns whether it must be stopped before libraries that were loaded after us are torn down.
  virtual bool start(const Times& times) = 0;
  // Stops watching calls. Idempotent; one thread at a time.
  virtual void stop() {}

  // A call, traced or not, is about to go to the driver.
  virtual void comes(const Call&) {}
  // A traced call is; `seq`: its number in the trace, unless it is an allocation. `any_captures`: whether a stream
  // captures, as far as the recorder knows.
  virtual void before(const Call&, std::uint64_t seq, const std::atomic<bool>& any_captures) = 0;
  // The driver has answered.
  virtual void after(const Call&, CUresult, std::uint64_t seq, Observed&) {}
  // The call is in the trace, as given here. Not for ops that go into a graph that is being captured.
  virtual void kept(const Call&, CUresult, std::uint64_t seq) {}
  // Instead of all that, or after it: this thread's call is over.
  virtual void leave() noexcept {}
  // The driver is about to end something or has ended it (Call::ends); not an op.
  virtual void ends(const Call&, const std::atomic<bool>& any_captures) {}

  virtual void sum_up(Summary&) const {}
  // The trace is complete, as far as it goes.
  virtual void finish(const std::string& trace) noexcept {}
  // In a forked child: must not touch what belongs to the parent.
  virtual void forked() noexcept {}
};

using RecordObservers = std::vector<std::unique_ptr<RecordObserver>>;

}  // namespace nimble::shim
