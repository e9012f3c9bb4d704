// A graph that is launched in an order of ours, as Onlookers knows it: with an event behind its last launch. Outlives
// the graph while that may run.
//
// Its owner makes and records the event, one launch at a time; any thread may ask.
#pragma once

#include <atomic>

#include "replayer/driver/driver_api.h"
#include "replayer/order/onlookers.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

class LaunchedWork final : public Onlookers::Work {
 public:
  // `driver` must outlive it.
  explicit LaunchedWork(const DriverApi& driver) : driver_(driver) {}
  ~LaunchedWork() override {
    if (behind && !context_gone()) driver_.cuEventDestroy_(behind);
  }

  bool is_through() noexcept override {
    if (!behind || context_gone()) return true;
    // Another thread may be capturing, which a question would end.
    const RelaxedCaptures relaxed(driver_.cuThreadExchangeStreamCaptureMode_);
    return driver_.cuEventQuery_(behind) != CUDA_ERROR_NOT_READY;
  }

  bool context_gone() const { return context_gone_.load(std::memory_order_acquire); }
  void context_goes() { context_gone_.store(true, std::memory_order_release); }

  CUevent behind = nullptr;
  std::atomic<bool> is_known{false};  // what it touches, and that it records no events

 private:
  const DriverApi& driver_;
  std::atomic<bool> context_gone_{false};
};

}  // namespace nimble::shim
