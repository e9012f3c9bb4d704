// Gives one thread the GPU to itself: calls of other threads that submit work, or change what memory there is, wait
// meanwhile.
//
// Any thread. No lock: a call that is in the driver counts, and whoever wants to be alone waits for it, but not for
// ever.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/patience.h"

namespace nimble::shim {

class Quiet {
 public:
  // A call begins, and is over.
  void enter() {
    const NotCancelled not_cancelled;
    for (;;) {
      inside_.fetch_add(1);
      if (!alone_.load()) return;
      inside_.fetch_sub(1);
      while (alone_.load()) std::this_thread::sleep_for(kLook);
    }
  }
  void leave() { inside_.fetch_sub(1); }

  // Whether the calling thread, which is in no call, is alone from now on, until end().
  bool begin(std::chrono::milliseconds patience) {
    const NotCancelled not_cancelled;
    Patience left(patience);
    while (alone_.exchange(true))
      if (!left.sleep(kLook)) return false;
    while (inside_.load() != 0) {
      if (left.sleep(kLook)) continue;
      alone_.store(false);
      return false;
    }
    return true;
  }
  void end() { alone_.store(false); }

 private:
  static constexpr std::chrono::microseconds kLook{20};

  std::atomic<std::uint64_t> inside_{0};
  std::atomic<bool> alone_{false};
};

// For a scope, or for longer.
class Alone {
 public:
  Alone(Quiet& quiet, std::chrono::milliseconds patience) : quiet_(quiet), is_(quiet.begin(patience)) {}
  // It has begun already.
  explicit Alone(Quiet& quiet) : quiet_(quiet), is_(true) {}
  ~Alone() {
    if (is_) quiet_.end();
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  explicit operator bool() const { return is_; }
  // Another one, made later, ends it.
  void goes_on() { is_ = false; }

 private:
  Quiet& quiet_;
  bool is_;
};

}  // namespace nimble::shim
