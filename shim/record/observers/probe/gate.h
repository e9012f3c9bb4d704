// Who may use the device alone for a while, and who waits until nobody does. All waiting is bounded: whoever is inside
// may be a thread that ended there. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "nimble/internal/process/not_cancelled.h"

namespace nimble::shim {

class Gate {
 public:
  // Goes inside, alone. False where somebody else did not leave in time.
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
  // Waits until nobody is inside. False where somebody did not leave in time.
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
