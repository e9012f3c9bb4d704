// The last of some messages, which stays readable while others come.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <utility>

namespace nimble::shim {

// Any thread. last() takes no lock, so messages stay.
class LastMessage {
 public:
  // Throws std::bad_alloc.
  void say(std::string text) {
    const std::lock_guard lock(mutex_);
    said_.push_back(std::move(text));
    last_.store(&said_.back(), std::memory_order_release);
  }
  // Null if there was none.
  const std::string* last() const { return last_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;  // guards the list
  std::list<std::string> said_;
  std::atomic<const std::string*> last_{nullptr};
};

}  // namespace nimble::shim
