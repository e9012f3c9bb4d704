// Lets one of Nimble's threads do something within a call that a thread of the program makes anyway.
//
// A file that is opened has a low descriptor for a moment (quiet_file.h). If that happens at any time, the program's
// own next descriptor may be another one than without Nimble; within a driver call, which may open files itself, it
// cannot.
//
// Any thread. No error: work that no thread of the program does is done by the thread that wants it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "nimble/internal/process/not_cancelled.h"

namespace nimble {

class ProgramTurn {
 public:
  // On one of Nimble's threads, which owns no lock that a thread of the program may wait for: waits until `work` is
  // done, which throws nothing.
  void take(const std::function<void()>& work) {
    {
      std::unique_lock lock(mutex_);
      wait(lock, [&] { return over_ || !work_; });
      if (!over_) {
        work_ = &work;
        wanted_.store(true, std::memory_order_release);
        wait(lock, [&] { return done_ == &work || (over_ && !running_); });
        const bool done = done_ == &work;
        work_ = done_ = nullptr;
        wanted_.store(false, std::memory_order_relaxed);
        changed_.notify_all();
        if (done) return;
      }
    }
    work();
  }
  // On a thread of the program, within a driver call.
  void give() {
    if (wanted_.load(std::memory_order_acquire)) [[unlikely]]
      run();
  }
  // The program makes no more calls, or waits for our threads in one.
  void end() {
    const NotCancelled not_cancelled;
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);  // this very thread may have been interrupted with it
      over_ = true;
    }
    changed_.notify_all();
  }

 private:
  // end() may come without the lock, so that it is missed.
  template <class Until>
  void wait(std::unique_lock<std::mutex>& lock, Until until) {
    while (!changed_.wait_for(lock, std::chrono::milliseconds(20), until)) {
    }
  }
  void run() {
    const NotCancelled not_cancelled;
    const std::function<void()>* work = nullptr;
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock || running_ || done_ || !work_) return;
      running_ = true;
      work = work_;
    }
    (*work)();
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
      done_ = work;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;  // guards all below, but for `over_`
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;  // that is wanted
  const std::function<void()>* done_ = nullptr;  // the same, done
  bool running_ = false;                         // it is being done
  std::atomic<bool> over_{false}, wanted_{false};
};

}  // namespace nimble
