// The text of a trace that is kept in memory instead of a file: for NIMBLE_MODE=auto, which reads it while it grows.
//
// One thread appends, any may read, and text that was returned does not change. Bounded: what exceeds the limit is
// dropped, and the text ends before it. A reader that has enough drops all of it. The memory is the kernel's, not
// malloc's: that would keep much of it for later, in an arena that the program may never use.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::shim {

class TraceStore {
 public:
  // Pages of the process, given back at the end.
  class Pages {
   public:
    explicit Pages(std::size_t bytes)
        : bytes_(bytes), begin_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
      if (begin_ == MAP_FAILED) throw std::bad_alloc();
    }
    ~Pages() { ::munmap(begin_, bytes_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    char* begin() const { return static_cast<char*>(begin_); }
    std::size_t bytes() const { return bytes_; }

   private:
    const std::size_t bytes_;
    void* const begin_;
  };
  // What was appended at once. Valid as long as it exists.
  struct Piece {
    std::shared_ptr<const Pages> pages;
    std::string_view text;
  };
  using Text = std::vector<Piece>;

  explicit TraceStore(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Appends whole lines. False once there is no more room. Throws std::bad_alloc, and has then appended nothing.
  bool append(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (full_ || bytes_ + text.size() > limit_) {
      full_.store(true, std::memory_order_release);
      return false;
    }
    if (!pages_ || pages_->bytes() - used_ < text.size()) {
      pages_ = std::make_shared<const Pages>(std::max(kPagesBytes, text.size()));
      used_ = 0;
    }
    char* const at = pages_->begin() + used_;
    text_.push_back({pages_, {at, text.size()}});
    std::memcpy(at, text.data(), text.size());
    used_ += text.size();
    bytes_ += text.size();
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
    Text().swap(text_);
    pages_.reset();
  }

 private:
  static constexpr std::size_t kPagesBytes = std::size_t{1} << 20;

  const std::uint64_t limit_;
  mutable std::mutex mutex_;  // guards all below
  Text text_;
  std::shared_ptr<const Pages> pages_;  // the last of them, and how much of it is used
  std::size_t used_ = 0;
  std::uint64_t bytes_ = 0;
  std::atomic<bool> full_{false};  // set under the lock
};

}  // namespace nimble::shim
