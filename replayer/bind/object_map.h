// Maps objects of the schedule to live allocations: one-to-one within a step, as when recorded.
//
// An object keeps its address from step to step until the program passes another one for it (a buffer was allocated
// anew, two buffers swapped roles). `generation` rises whenever any address changes or memory comes or goes, so a check
// need not be repeated within a generation. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/bind/memory_map.h"

namespace nimble {

class ObjectMap {
 public:
  ObjectMap(const Schedule& schedule, const MemoryMap& memory);

  // A new step begins: objects may take new addresses until the step has used them.
  void begin_step() { ++step_; }

  // Whether `address` is what the schedule means by `pointer`, binding its object if need be. Marks the object as used
  // in this step.
  bool accept(const SchedulePointer& pointer, std::uint64_t address);

  // Begins an attempt to match a call; undoes what it has accepted, since the call is something else.
  void attempt() { accepted_.clear(); }
  void undo();

  // Marks the object as used in this step, if nothing has changed since it was last accepted.
  void use(std::uint32_t object) { bound_[object].used_in_step = step_; }

  // Gives a step-local object its address, at its allocation.
  void place(std::uint32_t object, std::uint64_t base);

  // Gives a step-local object its address in the memory plan, for good. Objects with disjoint lifetimes may share it.
  void place_by_plan(std::uint32_t object, std::uint64_t base);

  // The program has allocated a step-local object in its place in the plan, or released it.
  void take(std::uint32_t object, bool taken);
  bool taken(std::uint32_t object) const { return taken_[object]; }
  std::uint32_t all_taken() const { return all_taken_; }
  // Whether one of the program's objects in the arena lies at the address: else a pointer there is dangling.
  bool has_in_arena(std::uint64_t arena, std::uint64_t address) const;
  // Whether the address is in the place of an object, live or not.
  bool is_a_place(std::uint64_t arena, std::uint64_t address) const;
  // Whether one begins after the address, at most `within` bytes away.
  bool begins_in_arena(std::uint64_t arena, std::uint64_t address, std::uint64_t within) const;

  // The object's address in this step; 0 if it has none.
  std::uint64_t base(std::uint32_t object) const { return bound_[object].base; }

  // The program freed the allocation at `base`, and those that begin in the `size` bytes from there.
  void freed(std::uint64_t base, std::uint64_t size = 0);
  // Memory came or went in another way.
  void changed() { ++generation_; }
  // Forgets all addresses.
  void clear();

  std::uint64_t generation() const { return generation_; }
  // Rises only when an object's address changes.
  std::uint64_t moves() const { return moves_; }

 private:
  struct Bound {
    std::uint64_t base = 0;
    std::uint64_t used_in_step = 0;
  };

  struct Before {
    std::uint32_t object = kNone;
    Bound bound;
  };

  bool rebind(std::uint32_t object, std::uint64_t address);

  const Schedule& schedule_;
  const MemoryMap& memory_;
  std::vector<Bound> bound_;                                 // by object
  std::unordered_map<std::uint64_t, std::uint32_t> owners_;  // by base address; without those placed by the plan
  std::vector<bool> taken_;                                  // by object
  std::uint32_t all_taken_ = 0;
  std::vector<Before> accepted_;  // the old state of what the current attempt has changed
  std::uint64_t step_ = 1, generation_ = 1, moves_ = 1;
};

}  // namespace nimble
