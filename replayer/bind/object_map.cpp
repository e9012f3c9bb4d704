#include "replayer/bind/object_map.h"

#include <algorithm>

namespace nimble {

ObjectMap::ObjectMap(const Schedule& schedule, const MemoryMap& memory)
    : schedule_(schedule), memory_(memory), bound_(schedule.objects.size()), taken_(schedule.objects.size(), false) {
  // The most objects that an attempt may accept, each perhaps taking an address from another: matching allocates
  // nothing.
  std::size_t most = 0;
  for (const ScheduleOp& op : schedule.ops) {
    const std::size_t globals = op.function == kNone ? 0 : schedule.functions[op.function].globals.size();
    most = std::max(most, op.pointers.size() + globals + 2 + (op.payload ? op.payload->size() + 1 : 0));
  }
  accepted_.reserve(2 * most);
}

bool ObjectMap::accept(const SchedulePointer& pointer, std::uint64_t address) {
  Bound& bound = bound_[pointer.object];
  const ScheduleObject& object = schedule_.objects[pointer.object];
  const auto inside = [&] { return bound.base && address - bound.base < object.size; };
  accepted_.push_back({pointer.object, bound});
  if (!inside() && !rebind(pointer.object, address)) return false;
  if (pointer.fixed && address - bound.base != pointer.offset) return false;
  bound.used_in_step = step_;
  return true;
}

bool ObjectMap::rebind(std::uint32_t index, std::uint64_t address) {
  Bound& bound = bound_[index];
  const ScheduleObject& object = schedule_.objects[index];
  // A step-local object has the address of its allocation, and within a step nothing moves.
  if (object.step_local || bound.used_in_step == step_) return false;
  const Allocation* allocation = memory_.find(address);
  if (!allocation || allocation->arena || allocation->size != object.size || allocation->memory != object.memory)
    return false;
  if (const auto owner = owners_.find(allocation->base); owner != owners_.end()) {
    // Another object has this address. If this step has not used it there, it may have moved, too: two buffers may
    // swap.
    if (bound_[owner->second].used_in_step == step_) return false;
    accepted_.push_back({owner->second, bound_[owner->second]});
    bound_[owner->second].base = 0;
    owners_.erase(owner);
  }
  if (bound.base) owners_.erase(bound.base);
  bound.base = allocation->base;
  owners_[allocation->base] = index;
  ++generation_;
  ++moves_;
  return true;
}

void ObjectMap::undo() {
  for (auto before = accepted_.rbegin(); before != accepted_.rend(); ++before) {
    Bound& bound = bound_[before->object];
    if (bound.base != before->bound.base) {
      if (const auto owner = owners_.find(bound.base); owner != owners_.end() && owner->second == before->object)
        owners_.erase(owner);
      if (before->bound.base) owners_[before->bound.base] = before->object;
      ++generation_;
      ++moves_;
    }
    bound = before->bound;
  }
  accepted_.clear();
}

void ObjectMap::place(std::uint32_t index, std::uint64_t base) {
  Bound& bound = bound_[index];
  bound.used_in_step = step_;
  if (bound.base == base) return;
  if (const auto owner = owners_.find(base); owner != owners_.end()) {
    bound_[owner->second].base = 0;
    owners_.erase(owner);
  }
  if (const auto owner = owners_.find(bound.base); owner != owners_.end() && owner->second == index)
    owners_.erase(owner);
  bound.base = base;
  owners_[base] = index;
  ++generation_;
  ++moves_;
}

void ObjectMap::place_by_plan(std::uint32_t index, std::uint64_t base) {
  Bound& bound = bound_[index];
  if (const auto owner = owners_.find(bound.base); owner != owners_.end() && owner->second == index)
    owners_.erase(owner);
  bound.base = base;
  ++generation_;
  ++moves_;
}

void ObjectMap::take(std::uint32_t object, bool taken) {
  if (taken_[object] == taken) return;
  taken_[object] = taken;
  taken ? ++all_taken_ : --all_taken_;
}

bool ObjectMap::has_in_arena(std::uint64_t arena, std::uint64_t address) const {
  for (std::size_t i = 0; i < taken_.size(); ++i)
    if (taken_[i] && address - arena - schedule_.objects[i].plan_offset < schedule_.objects[i].size) return true;
  return false;
}

bool ObjectMap::is_a_place(std::uint64_t arena, std::uint64_t address) const {
  return std::any_of(schedule_.objects.begin(), schedule_.objects.end(), [&](const ScheduleObject& object) {
    return object.step_local && arena + object.plan_offset == address;
  });
}

bool ObjectMap::begins_in_arena(std::uint64_t arena, std::uint64_t address, std::uint64_t within) const {
  for (std::size_t i = 0; i < taken_.size(); ++i)
    if (taken_[i] && arena + schedule_.objects[i].plan_offset - address - 1 < within) return true;
  return false;
}

void ObjectMap::freed(std::uint64_t base, std::uint64_t size) {
  ++generation_;
  const auto drop = [&](auto owner) {
    bound_[owner->second].base = 0;
    ++moves_;
    return owners_.erase(owner);
  };
  if (const auto owner = owners_.find(base); owner != owners_.end()) drop(owner);
  for (auto owner = owners_.begin(); size != 0 && owner != owners_.end();)
    owner = owner->first - base < size ? drop(owner) : std::next(owner);
}

void ObjectMap::clear() {
  for (Bound& bound : bound_) bound = {};
  owners_.clear();
  ++generation_;
  ++moves_;
}

}  // namespace nimble
