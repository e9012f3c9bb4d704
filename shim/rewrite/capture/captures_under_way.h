// The captures under way: which stream is in one, asked of the driver; which have begun and where they can end; and a
// way to keep others from beginning for a while.
//
// A capture counts from before the driver begins it until after it has ended it: so there are at most as many as
// counted. A thread that holds captures back and finds none counted knows that none is under way: if a hold and a
// capture begin at once, one sees the other.
//
// Owns the table of what has begun, under a lock of its own, never held while the driver is called. Any thread; what a
// call that ends a capture found beforehand is thread-local.
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
  // The driver's view of a stream's capture. An invalidated one is not active, and then the driver gives neither id nor
  // graph.
  struct Capturing {
    std::uint64_t id = 0;
    CUgraph graph = nullptr;
    bool active = false;
  };
  // A capture that has begun.
  struct Begun {
    std::uint64_t id = 0;
    CUcontext context = nullptr;
    bool to_graph = false;  // of the program
  };

  // `context` must outlive it.
  explicit CapturesUnderWay(CallContext& context) : context_(context) {}

  // How many are under way, at most; and whether any may be. Take no lock.
  int count() const { return count_.load(std::memory_order_relaxed); }
  bool any() const { return count() > 0; }
  // The capture that a stream is in.
  std::optional<Capturing> of(CUstream stream) const;
  std::optional<Capturing> of(const Call& call) const;
  std::size_t count_nodes(CUgraph graph) const;

  // --- The program's calls, in this order.

  // The driver is about to begin one. Waits for a Hold to end.
  void begins() { count_.fetch_add(1); }
  void wait_until_free() const;
  // The driver has begun it, or refused. Returns it.
  std::optional<Begun> began(const Call& call, bool good);
  // The driver is about to end one, perhaps. Returns its id, if known.
  std::optional<std::uint64_t> ends(const Call& call);
  // It may have. Returns the one that has ended.
  std::optional<Begun> ended(const Call& call);
  // A stream or a context ends. Returns the captures that therefore will not end by themselves.
  std::vector<Begun> forget(const Call& call);

  // Keeps captures from beginning while it lives. Threads may wait for it: keep it short.
  class Hold {
   public:
    explicit Hold(CapturesUnderWay& of) : of_(of.held_.exchange(true) ? nullptr : &of) {}
    ~Hold() {
      if (of_) of_->held_.store(false);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // False if another one lives.
    explicit operator bool() const { return of_ != nullptr; }
    // Whether none is under way.
    bool none_goes_on() const { return of_->count_.load() == 0; }

   private:
    CapturesUnderWay* const of_;
  };

 private:
  CallContext& context_;
  // Sequentially consistent: beginnings and holds have one order for all threads.
  std::atomic<int> count_{0};
  std::atomic<bool> held_{false};
  std::mutex mutex_;
  std::map<std::uint64_t, Begun> begun_;  // by the stream that it has begun on, the only one where it can end
};

}  // namespace nimble::shim
