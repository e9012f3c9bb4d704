// Allocations and releases by threads that do not take part in the replayed step, queued for the thread that matches
// it.
//
// A bounded queue after Vyukov's (1024cores, bounded MPMC queue): push() from any thread without a lock, drain() with
// the replayer's lock held. A drain() drains everything that, by the program's own order, was pushed before it began:
// it waits for slots that were taken and are not filled yet, which takes another thread a few instructions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "replayer/bind/memory_map.h"

namespace nimble {

struct MemoryEvent {
  bool born = false;      // else: released
  Allocation allocation;  // for a release, only `base` and `size` count, as for MemoryMap::remove
};

// A template for its test, which needs events that are slow to copy.
template <class Event>
class News {
 public:
  News() {
    for (std::size_t i = 0; i < kSlots; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  // False if there is no room.
  bool push(const Event& event) {
    std::size_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[at % kSlots];
      const std::size_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == at) {
        if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel)) continue;
        slot.event = event;
        slot.turn.store(at + 1, std::memory_order_release);
        return true;
      }
      if (turn < at) return false;
      at = tail_.load(std::memory_order_relaxed);
    }
  }

  // Calls `take` for each event, in push order. One caller at a time.
  template <class Take>
  void drain(Take take) {
    const std::size_t end = tail_.load(std::memory_order_acquire);
    for (; head_ != end; ++head_) {
      Slot& slot = slots_[head_ % kSlots];
      while (slot.turn.load(std::memory_order_acquire) != head_ + 1) std::this_thread::yield();
      take(slot.event);
      slot.turn.store(head_ + kSlots, std::memory_order_release);
    }
  }

 private:
  static constexpr std::size_t kSlots = 4096;

  struct Slot {
    std::atomic<std::size_t> turn;  // the position that may write it, or, plus one, read it
    Event event;
  };

  std::array<Slot, kSlots> slots_;
  alignas(64) std::atomic<std::size_t> tail_{0};
  alignas(64) std::size_t head_ = 0;
};

using MemoryNews = News<MemoryEvent>;

}  // namespace nimble
