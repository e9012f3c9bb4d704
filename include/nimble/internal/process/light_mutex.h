// A mutex whose lock and unlock are an instruction each where no other thread wants it, without a call: for those that
// every launch takes.
//
// As in U. Drepper, "Futexes are tricky" (2011), mutex2. Waiting threads sleep. Not recursive; not for processes that
// share memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace nimble {

class LightMutex {
 public:
  void lock() {
    std::uint32_t state = kFree;
    if (!state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire, std::memory_order_relaxed))
        [[unlikely]]
      wait();
  }
  bool try_lock() {
    std::uint32_t state = kFree;
    return state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWanted) [[unlikely]]
      wake();
  }

 private:
  static constexpr std::uint32_t kFree = 0, kHeld = 1, kWanted = 2;  // held, and another thread may be waiting

  [[gnu::noinline, gnu::cold]] void wait() {
    while (state_.exchange(kWanted, std::memory_order_acquire) != kFree)
      state_.wait(kWanted, std::memory_order_relaxed);
  }
  [[gnu::noinline, gnu::cold]] void wake() { state_.notify_one(); }

  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace nimble
