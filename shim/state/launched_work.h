// A graph that is launched in Nimble's order, as Onlookers knows it: with an event recorded after its last launch.
// Outlives the graph while that may run.
//
// Its owner makes and records the event, one launch at a time; any thread may ask.
#pragma once

#include <atomic>

#include "replayer/driver/driver_api.h"
#include "replayer/onlookers/onlookers.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

class LaunchedWork final : public Onlookers::Work {
 public:
  // `driver` must outlive it.
  explicit LaunchedWork(const DriverApi& driver) : driver_(driver) {}
  ~LaunchedWork() override {
    if (last_launch && !context_gone()) driver_.cuEventDestroy_(last_launch);
  }

  bool is_through() noexcept override {
    if (!last_launch || context_gone()) return true;
    // Another thread may be capturing, and the query would invalidate that capture.
    const RelaxedCaptures relaxed(driver_.cuThreadExchangeStreamCaptureMode_);
    return driver_.cuEventQuery_(last_launch) != CUDA_ERROR_NOT_READY;
  }

  bool context_gone() const { return context_gone_.load(std::memory_order_acquire); }
  void context_goes() { context_gone_.store(true, std::memory_order_release); }

  CUevent last_launch = nullptr;      // recorded after it
  std::atomic<bool> is_known{false};  // what it touches, and that it records no events

 private:
  const DriverApi& driver_;
  std::atomic<bool> context_gone_{false};
};

}  // namespace nimble::shim
