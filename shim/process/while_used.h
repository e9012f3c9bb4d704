// Holds an object that the program's threads use without a lock. It may be removed or replaced while some of them are
// using it: then the last of them to leave destroys it.
//
// New users get the present object, if there is one. A use may last as long as a driver call. Several counters, each on
// its own cache line, count the users: every call of the program enters and leaves, and threads would contend for a
// single counter.
//
// An object's counters are never destroyed, but reused for a later object. So a thread that has read their address, and
// comes late, finds them closed, or counts as a user of the later object. Any thread; the one lock is held briefly,
// when an object begins or has ended.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace nimble::shim {

// A use, kept where an object with a destructor cannot be. Trivial.
struct DetachedUse {
  void* of = nullptr;
  void* place = nullptr;  // where it is counted
};

template <class T>
class WhileUsed {
  struct Place;

  // Counts the users of some threads. Once it is closed it admits no more, and the last user leaves it drained.
  struct alignas(64) Counter {
    static constexpr std::uint64_t kClosed = 1, kUser = 2;
    std::atomic<std::uint64_t> state{kClosed};
    Place* place = nullptr;
  };
  static constexpr std::size_t kCounters = 16;

  // One object at a time.
  struct Place {
    Place() {
      for (Counter& counter : counters) counter.place = this;
    }
    std::array<Counter, kCounters> counters;
    alignas(64) std::atomic<std::size_t> undrained{0};  // whoever drains the last one destroys the object
    std::unique_ptr<T> what;
  };

 public:
  // Keeps the object alive. Empty if there is none.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept : of_(other.of_), counter_(std::exchange(other.counter_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(counter_, other.counter_);
      return *this;
    }
    ~Use() {
      if (counter_) of_->leave(*counter_);
    }

    // One more use of the same object. A counter with a user is not drained, though it may be closed.
    Use another() const {
      if (counter_) counter_->state.fetch_add(Counter::kUser, std::memory_order_relaxed);
      return Use(of_, counter_);
    }
    DetachedUse detach() && { return {of_, std::exchange(counter_, nullptr)}; }

    explicit operator bool() const { return counter_ != nullptr; }
    T* get() const { return counter_ ? counter_->place->what.get() : nullptr; }
    T* operator->() const { return counter_->place->what.get(); }
    T& operator*() const { return *counter_->place->what; }

   private:
    friend class WhileUsed;
    Use(WhileUsed* of, Counter* counter) : of_(of), counter_(counter) {}

    WhileUsed* of_ = nullptr;
    Counter* counter_ = nullptr;  // may belong to another thread by now
  };

  WhileUsed() = default;
  WhileUsed(const WhileUsed&) = delete;
  WhileUsed& operator=(const WhileUsed&) = delete;
  // No one uses it any more.
  ~WhileUsed() { put(nullptr); }

  // A use of the present object.
  Use use() {
    for (;;) {
      Place* const place = present_.load(std::memory_order_acquire);
      if (!place) return {};
      Counter& counter = place->counters[which()];
      std::uint64_t state = counter.state.load(std::memory_order_relaxed);
      while (!(state & Counter::kClosed) &&
             !counter.state.compare_exchange_weak(state, state + Counter::kUser, std::memory_order_acq_rel)) {
      }
      if (!(state & Counter::kClosed)) return Use(this, &counter);
    }
  }

  // The detached use, which is empty from here on. Empty if it is not of this holder.
  Use attach(DetachedUse& detached) {
    const DetachedUse taken = std::exchange(detached, {});
    return taken.of == this ? Use(this, static_cast<Counter*>(taken.place)) : Use();
  }

  // Whether new users still get this use's object.
  bool is_present(const Use& use) const {
    const Place* const present = present_.load(std::memory_order_acquire);
    return use.counter_ ? use.counter_->place == present : !present;
  }
  // Whether there is an object. It may end at once.
  bool any() const { return present_.load(std::memory_order_acquire) != nullptr; }

  // New users get this object from now on, or none. The previous one ends with its last user, or here: does not wait
  // for users.
  void put(std::unique_ptr<T> next) {
    Place* place = nullptr;
    if (next) {
      place = unused();
      place->what = std::move(next);
      place->undrained.store(kCounters, std::memory_order_relaxed);
      for (Counter& counter : place->counters) counter.state.store(0, std::memory_order_release);
    }
    if (Place* const before = present_.exchange(place, std::memory_order_acq_rel)) close(*before);
  }

  // The same as put(nullptr), unless there is another object by now. Whether it did so.
  bool end(const Use& use) {
    Place* place = use.counter_ ? use.counter_->place : nullptr;
    if (!place || !present_.compare_exchange_strong(place, nullptr, std::memory_order_acq_rel)) return false;
    close(*place);
    return true;
  }

 private:
  Place* unused() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) {
      unused_.reserve(places_.size() + 1);  // so that leaving allocates nothing
      places_.push_back(std::make_unique<Place>());
      return places_.back().get();
    }
    Place* const place = unused_.back();
    unused_.pop_back();
    return place;
  }

  // Which counter this thread uses. Thread descriptors lie one stack apart; this spreads them, whatever that distance
  // is.
  static std::size_t which() {
    constexpr int kBits = 4;
    static_assert(kCounters == 1u << kBits);
    return static_cast<std::uint64_t>(pthread_self()) * 0x9e3779b97f4a7c15u >> (64 - kBits);
  }

  void leave(Counter& counter) noexcept {
    if (counter.state.fetch_sub(Counter::kUser, std::memory_order_acq_rel) == (Counter::kUser | Counter::kClosed))
      drained(*counter.place);
  }

  // Each counter is drained once: here if it has no users, or by its last user.
  void close(Place& place) noexcept {
    for (Counter& counter : place.counters)
      if (counter.state.fetch_or(Counter::kClosed, std::memory_order_acq_rel) == 0) drained(place);
  }

  void drained(Place& place) noexcept {
    if (place.undrained.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    place.what.reset();
    const std::lock_guard lock(mutex_);
    unused_.push_back(&place);
  }

  std::atomic<Place*> present_{nullptr};
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Place>> places_;
  std::vector<Place*> unused_;
};

}  // namespace nimble::shim
