// The step's own memory by the schedule's plan: whether this step is served from it, and which objects the program has
// there.
//
// The plan describes the arena, whose address the caller knows (bind/arena.h). Allocates nothing once built. Not
// synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/bind/object_map.h"

namespace nimble {

class MemoryPlan {
 public:
  // Both must outlive it.
  MemoryPlan(const Schedule& schedule, ObjectMap& objects) : schedule_(schedule), objects_(objects) {}

  // A step may begin. `serves`: its own memory comes from the plan.
  void begin_step(bool serves) {
    note_leftovers();
    serves_ = serves;
  }
  // It does not after all.
  void pass() { serves_ = false; }
  bool serves() const { return serves_; }

  // Gives the step's own objects their places; `arena` is where it begins.
  void place(std::uint64_t arena);
  // Whether it has done so, and they are still there.
  bool is_placed() const { return placed_; }
  void forget_places() { placed_ = false; }

  // The driver is about to allocate this object, or kNone if it is not the step's, for a call of this thread; it has
  // allocated for a call.
  void allocates(std::uint32_t object, std::uint32_t thread) {
    allocating_ = object;
    thread_ = thread;
  }
  void allocated(std::uint64_t address, std::uint32_t thread) {
    if (allocating_ == kNone || thread_ != thread) return;
    objects_.place(allocating_, address);
    allocating_ = kNone;
  }

  // Whether the program still has memory where the plan puts this object.
  bool is_in_use(std::uint32_t object) const;
  // The program's object that begins at the offset, or holds it; kNone for none.
  std::uint32_t begins_at(std::uint64_t offset) const;
  std::uint32_t holds(std::uint64_t offset) const;
  // How many bytes of objects the program has.
  std::uint64_t bytes_in_use() const;

 private:
  void note_leftovers();

  const Schedule& schedule_;
  ObjectMap& objects_;
  bool serves_ = false, placed_ = false;
  std::vector<std::uint32_t> leftovers_;  // objects that the program had when the step began
  std::uint32_t allocating_ = kNone, thread_ = 0;
};

}  // namespace nimble
