// Chooses between the program's own graph and the rewritten one: first alternates, timing both, then the faster one.
//
// The lock of the graph's launches guards it (GraphPair), except for the decision: that has its own lock, taken after
// the former and never held while the driver is called, so that any thread may ask.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "replayer/driver/driver_api.h"
#include "replayer/tune/step_clock.h"
#include "replayer/tune/tuner.h"

namespace nimble::shim {

class FasterGraph {
 public:
  // `driver` must outlive it.
  FasterGraph(const DriverApi& driver, Tune tune);

  // --- A launch, in this order.

  // Whether we launch the program's own for good.
  bool ends() const { return tuner_.ends_replay(); }
  // Which one to launch, and whether it may be timed.
  struct Turn {
    Way way = Way::own;
    bool timed = false;
    bool is_rewritten() const { return way == Way::schedule; }
  };
  Turn next() {
    if (has_settled_.load(std::memory_order_relaxed)) [[unlikely]]
      settle();
    const Tuner::Step step = tuner_.next();
    return {step.way, step.timed && !clock_.full()};
  }
  void begin(const Turn& turn, CUstream stream) { clock_.begin(turn.way, stream); }
  void end(CUstream stream) {
    if (clock_.running()) clock_.end(stream);
  }
  // Nothing was launched, or nothing that counts.
  void cancel() { clock_.cancel(); }
  // Takes in the times known by now. Whether they have just decided which one is faster.
  bool take_in();
  // The decision, for the log.
  std::string news(std::uint64_t number) const;
  // The context is alive: destroys the events.
  void close() { clock_.close(); }

  // --- Any thread.

  // As ends(), once decided.
  bool is_own_for_good() const { return own_for_good_.load(std::memory_order_relaxed); }
  // The driver's state has changed (context_bounce.h), perhaps during the trial: the next launch takes note, so that no
  // thread waits for one under way.
  void driver_settled() { has_settled_.store(true, std::memory_order_relaxed); }
  struct Decided {
    bool any = false, own_is_faster = false;
    double own_us = -1, rewritten_us = -1;
  };
  Decided decided() const;

 private:
  void settle();
  void decide();

  const Tune tune_;
  Tuner tuner_;
  StepClock clock_;
  std::atomic<bool> has_settled_{false};  // since the last launch
  std::atomic<bool> own_for_good_{false};
  mutable std::mutex mutex_;  // guards what follows
  Decided decided_;
};

}  // namespace nimble::shim
