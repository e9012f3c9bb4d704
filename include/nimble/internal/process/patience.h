// Waits for something, but not for longer than a limit: by the clock, and by how long it has slept. A program may have
// brought a clock of its own (libfaketime) that stands still.
//
// For one thread. Throws nothing.
#pragma once

#include <chrono>
#include <thread>

namespace nimble {

class Patience {
 public:
  explicit Patience(std::chrono::nanoseconds limit) noexcept : limit_(limit) { begin_anew(); }

  bool is_over() const noexcept { return slept_ > limit_ || std::chrono::steady_clock::now() > end_; }
  // Sleeps for so long. False, at once, if it is over.
  bool sleep(std::chrono::nanoseconds nap) {
    if (is_over()) return false;
    std::this_thread::sleep_for(nap);
    slept_ += nap;
    return true;
  }
  // There is progress.
  void begin_anew() noexcept {
    slept_ = std::chrono::nanoseconds(0);
    end_ = std::chrono::steady_clock::now() + limit_;
  }

 private:
  const std::chrono::nanoseconds limit_;
  std::chrono::nanoseconds slept_{0};
  std::chrono::steady_clock::time_point end_;
};

}  // namespace nimble
