// Something that threads of the program use without a lock, and that ends while some of them may be in it: it is
// destroyed once the last of them has left, by that one.
//
// There is at most one at a time that new users get. A use may last as long as a call of the driver does. What counts
// the users of one is used again for a later one, and never destroyed itself: so a thread that has read where it is,
// and comes late, finds either that nobody is to come any more, or the later one. Any thread; no lock but a short one
// where something begins or has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace nimble::shim {

// A use that is kept where no object with a destructor can be. Trivial.
struct DetachedUse {
  void* of = nullptr;
  void* place = nullptr;
};

template <class T>
class WhileUsed {
  struct Place {
    std::atomic<std::uint64_t> users{0};  // and one more until put() takes another's place for it; 0: nobody may come
    std::unique_ptr<T> what;
  };

 public:
  // Keeps it from being destroyed. Empty where there is none.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept : of_(other.of_), place_(std::exchange(other.place_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Use() {
      if (place_) of_->leave(*place_);
    }

    // One more of the same.
    Use another() const {
      if (place_) place_->users.fetch_add(1, std::memory_order_relaxed);
      return Use(of_, place_);
    }
    DetachedUse detach() && { return {of_, std::exchange(place_, nullptr)}; }

    explicit operator bool() const { return place_ != nullptr; }
    T* get() const { return place_ ? place_->what.get() : nullptr; }
    T* operator->() const { return place_->what.get(); }
    T& operator*() const { return *place_->what; }

   private:
    friend class WhileUsed;
    Use(WhileUsed* of, Place* place) : of_(of), place_(place) {}

    WhileUsed* of_ = nullptr;
    Place* place_ = nullptr;
  };

  WhileUsed() = default;
  WhileUsed(const WhileUsed&) = delete;
  WhileUsed& operator=(const WhileUsed&) = delete;
  // Nobody uses any.
  ~WhileUsed() { put(nullptr); }

  // The present one.
  Use use() {
    for (;;) {
      Place* const place = present_.load(std::memory_order_acquire);
      if (!place) return {};
      std::uint64_t users = place->users.load(std::memory_order_relaxed);
      while (users != 0 && !place->users.compare_exchange_weak(users, users + 1, std::memory_order_acq_rel)) {
      }
      if (users != 0) return Use(this, place);
    }
  }

  // What was detached, which is empty from here on. Empty where it is none of this object's.
  Use attach(DetachedUse& detached) {
    const DetachedUse taken = std::exchange(detached, {});
    return taken.of == this ? Use(this, static_cast<Place*>(taken.place)) : Use();
  }

  // Whether new users get the one that this use is of, still.
  bool is_present(const Use& use) const { return use.place_ == present_.load(std::memory_order_acquire); }
  // Whether there is one. It may end at once.
  bool any() const { return present_.load(std::memory_order_acquire) != nullptr; }

  // New users get this from now on, or none. The one before ends with its last user, or here: nobody waits for users.
  void put(std::unique_ptr<T> next) {
    Place* place = nullptr;
    if (next) {
      place = unused();
      place->what = std::move(next);
      place->users.store(1, std::memory_order_release);
    }
    if (Place* const before = present_.exchange(place, std::memory_order_acq_rel)) leave(*before);
  }

  // The same as put(nullptr), unless there is another by now. Whether it did so.
  bool end(const Use& use) {
    Place* place = use.place_;
    if (!place || !present_.compare_exchange_strong(place, nullptr, std::memory_order_acq_rel)) return false;
    leave(*place);
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

  void leave(Place& place) noexcept {
    if (place.users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
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
