// What watches beside a recorder: parts of a recording that a trace is whole without. Each sees every recorded call
// before and after the driver does, and adds to its record what it has found.
//
// A recorder owns its observers and calls them in their order before the driver, in the opposite order after it. From
// any thread, with the guard entered; start() comes once, and on other threads calls may be before() it or after() it:
// an observer that is not ready sees nothing. What is thrown ends the recording; no error of an observer's own reaches
// the program.
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

// What is known of a call beside its arguments.
struct Observed {
  std::uint64_t ticket = 0;                            // what times that come later name it by, if CUPTI does; 0: none
  const std::vector<TraceAccess>* accesses = nullptr;  // good until the thread's next call
};

// What is known of how complete the recording is.
struct Summary {
  Coverage coverage{"NIMBLE_COVERAGE=off", 0, 0, {}, TimeSource::none, {}};
  std::optional<ProbeTotals> probe;
};

class RecordObserver {
 public:
  using Times = std::function<void(std::span<const DeviceTime>)>;

  virtual ~RecordObserver() = default;

  // The first call that traces hold has come: the driver is there. `times` takes when ops ran, from any thread, for as
  // long as the observer lives. Whether it must be stopped while libraries that were loaded after us are still whole.
  virtual bool start(const Times& times) = 0;
  // No call is looked at any more. Idempotent; one thread at a time.
  virtual void stop() {}

  // Any call is about to go to the driver, whether traces hold it or not.
  virtual void comes(const Call&) {}
  // One that traces hold; `seq`: its number there, unless it is an allocation. `any_captures`: whether a stream
  // captures, as far as the recorder knows.
  virtual void before(const Call&, std::uint64_t seq, const std::atomic<bool>& any_captures) = 0;
  // The driver has answered.
  virtual void after(const Call&, CUresult, std::uint64_t seq, Observed&) {}
  // It is in the trace, as it is given here. Not for ops that go into a graph that is being captured.
  virtual void kept(const Call&, CUresult, std::uint64_t seq) {}
  // In the place of all that, or behind it: this thread's call is over.
  virtual void leave() noexcept {}
  // What the driver is about to end or has ended (Call::ends), which is no op.
  virtual void ends(const Call&, const std::atomic<bool>& any_captures) {}

  virtual void sum_up(Summary&) const {}
  // The trace is complete, as far as it goes.
  virtual void finish(const std::string& trace) noexcept {}
  // In a forked child: nothing of the parent's is touched any more.
  virtual void forked() noexcept {}
};

using RecordObservers = std::vector<std::unique_ptr<RecordObserver>>;

}  // namespace nimble::shim
