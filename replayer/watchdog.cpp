#include "replayer/watchdog.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <thread>

namespace nimble {

namespace {

// Looks without anything held after which the thread goes to sleep, so that an idle program costs nothing.
constexpr int kIdleLooks = 200;

}  // namespace

Watchdog::Watchdog(std::chrono::microseconds bound, std::function<std::uint64_t()> activity,
                   std::function<void(std::uint64_t)> expired, std::function<void()> enter_thread)
    : look_every_(std::max(bound / 2, std::chrono::microseconds(50))),
      activity_(std::move(activity)),
      expired_(std::move(expired)),
      enter_thread_(std::move(enter_thread)) {
  // Signals are the program's: none of its handlers may run on our thread.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread([this] { run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Watchdog::wake_thread() {
  const std::lock_guard lock(mutex_);
  asleep_.store(false, std::memory_order_release);
  condition_.notify_one();
}

void Watchdog::run() {
  enter_thread_();
  std::uint64_t last = 0;
  int idle = 0;
  for (;;) {
    const std::uint64_t now = activity_();
    if (now != 0 && now == last) expired_(now);
    last = now;
    idle = now == 0 ? idle + 1 : 0;
    if (idle < kIdleLooks) {
      std::this_thread::sleep_for(look_every_);
      continue;
    }
    std::unique_lock lock(mutex_);
    asleep_.store(true, std::memory_order_release);
    // Ops held between the last look and this store would not have woken us: look once more.
    if (activity_() != 0) asleep_.store(false, std::memory_order_release);
    condition_.wait(lock, [&] { return !asleep_.load(std::memory_order_acquire); });
    idle = 0;
  }
}

}  // namespace nimble
