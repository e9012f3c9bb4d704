// A gate that gives one thread the device to itself for a while; others wait until it is empty. All waiting is bounded:
// the thread inside may have ended there. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "nimble/internal/process/not_cancelled.h"

namespace nimble::shim {

class Gate {
 public:
  // Enters alone. False if another thread did not leave in time.
  bool enter(std::chrono::milliseconds patience) {
    const NotCancelled not_cancelled;
    std::unique_lock lock(mutex_);
    if (!left_.wait_for(lock, patience, [&] { return !inside_; })) return false;
    return inside_ = true;
  }
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      inside_ = false;
    }
    left_.notify_all();
  }
  // Waits until the gate is empty. False if a thread did not leave in time.
  bool pass(std::chrono::milliseconds patience) {
    const NotCancelled not_cancelled;
    std::unique_lock lock(mutex_);
    return left_.wait_for(lock, patience, [&] { return !inside_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  bool inside_ = false;
};

}  // namespace nimble::shim
