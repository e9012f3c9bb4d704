// Submits held ops when the program makes no further call: it may be watching memory that the GPU writes.
//
// The bound is the option NIMBLE_HOLD_US; its default stands in include/nimble/internal/options.def, row hold_us.
// A separate thread, which sleeps until ops are held, then looks twice per bound; if nothing has happened between two
// looks, it calls `expired`. It holds no lock of its own while calling out. Once started it lives as long as the
// process.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace nimble {

class Watchdog {
 public:
  // `activity` is a number that changes whenever an op is held, and is 0 while none is. `expired(activity)` must submit
  // held ops, if the number is still the same. `enter_thread` runs first on the watchdog's thread.
  Watchdog(std::chrono::microseconds bound, std::function<std::uint64_t()> activity,
           std::function<void(std::uint64_t)> expired, std::function<void()> enter_thread);

  // Once, before anything is held. False if no thread can start: then nothing may be held.
  [[nodiscard]] bool start();

  // Ops are held now, and none were before. Cheap if the thread is awake.
  void wake() {
    // Sequentially consistent, as is the store of the activity before it and both accesses in run(): each side sees the
    // other's store, or is seen.
    if (asleep_.load()) wake_thread();
  }

 private:
  void run();
  void wake_thread();

  const std::chrono::microseconds look_every_;
  const std::function<std::uint64_t()> activity_;
  const std::function<void(std::uint64_t)> expired_;
  const std::function<void()> enter_thread_;
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

}  // namespace nimble
