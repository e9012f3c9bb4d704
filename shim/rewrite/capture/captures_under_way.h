// The captures that go on: which stream is in one, asked of the driver; which have begun and where they can end; and a
// way to keep others from beginning for a while.
//
// A capture is counted from before the driver begins it, and until after it has ended it: so there may be fewer than
// are counted, and never more. Who keeps captures back and finds none counted knows that none goes on: of two that come
// at once, one sees the other.
//
// Owns the table of what has begun, under a lock of its own, never held while the driver is called. Any thread; what a
// call that ends a capture has found before the driver saw it is kept with its thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble::shim {

class CapturesUnderWay {
 public:
  // What the driver says of a stream's capture. One that an error has spoilt is not active, and then the driver tells
  // neither id nor graph.
  struct Capturing {
    std::uint64_t id = 0;
    CUgraph graph = nullptr;
    bool active = false;
  };
  // A capture that has begun.
  struct Begun {
    std::uint64_t id = 0;
    CUcontext context = nullptr;
    bool to_graph = false;  // of the program's
  };

  // `context` must outlive it.
  explicit CapturesUnderWay(CallContext& context) : context_(context) {}

  // How many go on, at most; and whether any may. Cost no lock.
  int count() const { return count_.load(std::memory_order_relaxed); }
  bool any() const { return count() > 0; }
  // The capture that a stream is in.
  std::optional<Capturing> of(CUstream stream) const;
  std::optional<Capturing> of(const Call& call) const;
  std::size_t count_nodes(CUgraph graph) const;

  // --- The program's calls, in this order.

  // The driver is about to begin one. It waits for who keeps captures back.
  void begins() { count_.fetch_add(1); }
  void wait_until_free() const;
  // The driver has, or has not. Which.
  std::optional<Begun> began(const Call& call, bool good);
  // The driver is about to end one, if it is one. Which, as far as it is known.
  std::optional<std::uint64_t> ends(const Call& call);
  // It may have. Which has ended.
  std::optional<Begun> ended(const Call& call);
  // A stream or a context ends. Which captures will come to no end of their own because of that.
  std::vector<Begun> forget(const Call& call);

  // No capture begins while one of these lives that is none other's. Somebody waits for that: not for long.
  class Hold {
   public:
    explicit Hold(CapturesUnderWay& of) : of_(of.held_.exchange(true) ? nullptr : &of) {}
    ~Hold() {
      if (of_) of_->held_.store(false);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // False where another one lives.
    explicit operator bool() const { return of_ != nullptr; }
    // Whether none goes on.
    bool none_goes_on() const { return of_->count_.load() == 0; }

   private:
    CapturesUnderWay* const of_;
  };

 private:
  CallContext& context_;
  // In one order for all threads, where captures begin and are held.
  std::atomic<int> count_{0};
  std::atomic<bool> held_{false};
  std::mutex mutex_;
  std::map<std::uint64_t, Begun> begun_;  // by the stream that it has begun on, where alone it can end
};

}  // namespace nimble::shim
