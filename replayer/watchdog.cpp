#include "replayer/watchdog.h"

#include <algorithm>
#include <thread>

#include "nimble/internal/process/own_thread.h"

namespace nimble {

namespace {

// How many looks without held ops until the thread sleeps, so that an idle program costs nothing.
constexpr int kIdleLooks = 200;

}  // namespace

Watchdog::Watchdog(std::chrono::microseconds bound, std::function<std::uint64_t()> activity,
                   std::function<void(std::uint64_t)> expired, std::function<void()> enter_thread)
    : look_every_(std::max(bound / 2, std::chrono::microseconds(50))),
      activity_(std::move(activity)),
      expired_(std::move(expired)),
      enter_thread_(std::move(enter_thread)) {}

bool Watchdog::start() {
  return start_own_thread([this] { run(); });
}

void Watchdog::wake_thread() {
  const std::lock_guard lock(mutex_);
  asleep_.store(false);
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
    asleep_.store(true);
    // Ops held between the last look and this store would not have woken us: look once more.
    if (activity_() != 0) asleep_.store(false);
    condition_.wait(lock, [&] { return !asleep_.load(); });
    idle = 0;
  }
}

}  // namespace nimble
