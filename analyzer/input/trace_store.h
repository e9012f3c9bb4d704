// The text of a trace that is kept in memory instead of a file: for NIMBLE_MODE=auto, which reads it while it grows.
//
// One thread appends, any may read, and text that was returned does not change. Bounded: what exceeds the limit is
// dropped, and the text ends before it. A reader that has enough drops all of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace nimble::shim {

class TraceStore {
 public:
  using Text = std::vector<std::shared_ptr<const std::string>>;

  explicit TraceStore(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Appends whole lines, and leaves `text` empty. False once there is no more room.
  bool append(std::string& text) {
    const std::lock_guard lock(mutex_);
    if (full_ || bytes_ + text.size() > limit_) {
      full_.store(true, std::memory_order_release);
      text.clear();
      return false;
    }
    bytes_ += text.size();
    text_.push_back(std::make_shared<const std::string>(std::move(text)));
    text.clear();
    return true;
  }

  // The text so far.
  Text text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

  std::uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

  // Once true, it stays so. Takes no lock, because it is asked at each call.
  bool full() const { return full_.load(std::memory_order_acquire); }

  // Forgets the text. Nothing more is appended.
  void drop() {
    const std::lock_guard lock(mutex_);
    full_.store(true, std::memory_order_release);
    text_.clear();
  }

 private:
  const std::uint64_t limit_;
  mutable std::mutex mutex_;  // guards all below
  Text text_;
  std::uint64_t bytes_ = 0;
  std::atomic<bool> full_{false};  // set under the lock
};

}  // namespace nimble::shim
