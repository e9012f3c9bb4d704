// Which live allocation stands for which object of the schedule: one-to-one within a step, as it was when recorded.
//
// An object keeps its address from step to step until the program passes another one for it (a buffer was allocated
// anew, two buffers swapped roles). `generation` rises whenever any address changes or memory comes and goes, so what
// was checked under the same generation need not be checked again. Not synchronised: the replayer's lock guards it.
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

  // Whether `address` is the place that the schedule means by `pointer`, binding its object if need be. Marks the
  // object as used in this step.
  bool accept(const SchedulePointer& pointer, std::uint64_t address);

  // An attempt to match a call begins; and what it has accepted is to be as it was, since the call is something else.
  void attempt() { accepted_.clear(); }
  void undo();

  // Marks the object as used in this step, where nothing has changed since it was last accepted.
  void use(std::uint32_t object) { bound_[object].used_in_step = step_; }

  // Gives a step-local object its address, at its allocation.
  void place(std::uint32_t object, std::uint64_t base);

  // Gives a step-local object the address that the memory plan has for it, for good. Objects of which one is freed
  // before the other is allocated may have the same.
  void place_by_plan(std::uint32_t object, std::uint64_t base);

  // The program has a step-local object in its place of the plan, or has given it back.
  void take(std::uint32_t object, bool taken);
  bool taken(std::uint32_t object) const { return taken_[object]; }
  std::uint32_t all_taken() const { return all_taken_; }
  // Whether an object that the program has in the arena lies at the address: what else points there points to nothing.
  bool has_in_arena(std::uint64_t arena, std::uint64_t address) const;
  // Whether an object has its place at the address, be it there or not.
  bool is_a_place(std::uint64_t arena, std::uint64_t address) const;
  // Whether one begins behind the address, `within` bytes at most.
  bool begins_in_arena(std::uint64_t arena, std::uint64_t address, std::uint64_t within) const;

  // The object's address in this step; 0 where it has none.
  std::uint64_t base(std::uint32_t object) const { return bound_[object].base; }

  // The program freed the allocation at `base`, and those that begin in the `size` bytes from there.
  void freed(std::uint64_t base, std::uint64_t size = 0);
  // Memory came or went otherwise.
  void changed() { ++generation_; }
  // Forgets all addresses.
  void clear();

  std::uint64_t generation() const { return generation_; }
  // Rises whenever any object's address changes, and with nothing else.
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
  std::unordered_map<std::uint64_t, std::uint32_t> owners_;  // by base address; not of what is placed by the plan
  std::vector<bool> taken_;                                  // by object
  std::uint32_t all_taken_ = 0;
  std::vector<Before> accepted_;  // what the attempt at hand has changed, as it was
  std::uint64_t step_ = 1, generation_ = 1, moves_ = 1;
};

}  // namespace nimble
