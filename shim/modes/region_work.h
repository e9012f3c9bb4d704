// The graphs of a region, as Onlookers knows them: through once the driver says so.
//
// It says so by an event after the last launch, which is recorded when somebody asks, or before the stream may end, or
// capture: hardly anybody asks. Outlives the region while its graphs may run.
//
// Any thread. One lock, under which only the driver and Onlookers are called. The region's launches hold it, but for
// those by the gate of Onlookers, which follow another one on its stream. Errors: what cannot be asked counts as
// running.
#pragma once

#include <cuda.h>

#include <atomic>
#include <mutex>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"
#include "replayer/onlookers/onlookers.h"

namespace nimble::shim {

class RegionWork final : public Onlookers::Work {
 public:
  // `driver` must outlive it.
  RegionWork(const DriverApi& driver, CUcontext context, bool records_events)
      : RelaxedWork(0, records_events, Gated::yes), driver_(driver), context_(context) {}
  ~RegionWork() override;

  // False also while a launch is being made: it may be waiting for the very op of the asking thread.
  bool is_through() noexcept override;
  // The stream of the last launch may end from now on, or capture; null: any. Its gate is closed.
  void mark(const StreamRef* stream = nullptr);
  // With the context, all of them are gone.
  void context_goes();

  // There has been a launch by the gate, which it is still in.
  void launched_by_gate() {
    // A store would take the cache line each time. Whoever finds nothing due has not seen the launch either.
    if (!is_due_.load(std::memory_order_seq_cst)) is_due_.store(true, std::memory_order_seq_cst);
  }

  // --- Of another launch that is being made: with the lock, and with the context current.

  std::mutex& lock() { return mutex_; }
  // Orders what comes on the stream after the last launch.
  CUresult order_after_last(const StreamRef& stream);
  // `captures`: some stream captures.
  void launched(const StreamRef& stream, bool captures);

 private:
  bool record();
  void record_or_wait();

  const DriverApi& driver_;
  const CUcontext context_;
  std::mutex mutex_;
  StreamRef stream_;                 // of the last launch; none once that may have ended
  CUevent last_ = nullptr;           // recorded after a launch
  std::atomic<bool> is_due_{false};  // there was one after that record
  bool context_gone_ = false;
};

}  // namespace nimble::shim
