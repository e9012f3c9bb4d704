// What the step's own ops do to the pointers in memory.
#include <algorithm>
#include <utility>

#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {

void PointersInMemory::inside(std::uint32_t op) {
  const std::uint32_t index = step_.calls[op];
  const TraceCall& call = trace_.calls[index];
  if (call.result != 0) return;
  const bool copies = call.kind == CallKind::copy || call.kind == CallKind::set;
  if (op < step_.uncompared.size() && step_.uncompared[op] != 0) {
    // What brings or overwrites pointers has to do so where it was recorded to, whether that is asked about or not.
    if (const PointerWord* const to = copies ? facts_.pointer_at(index, kAtDst) : nullptr)
      compared_[op] |= !facts_.host_fills(*to);
    if (!copies || !call.words) {
      const bool could_clear = taints_.set_clearing(false);
      if (call.kind == CallKind::launch && !is_node_of_a_graph(call)) {
        by_sight_[op] = flows_.by_sight(index);
        kernel_not_compared(index);
      }
      outside(index);
      taints_.set_clearing(could_clear);
      return;
    }
  }
  switch (call.kind) {
    case CallKind::copy:
      return copy_inside(op);
    case CallKind::set:
      return set_inside(op);
    case CallKind::launch:
      return kernel_inside(op);
    default:
      return outside(index);
  }
}

bool PointersInMemory::arriving(std::uint32_t op, const PointerWord& to, Contents& result, std::string_view& why) {
  const std::uint32_t index = step_.calls[op];
  const TraceCall& copy = trace_.calls[index];
  const PointerWord* from = facts_.pointer_at(index, kAtSrc);
  const bool from_host = from == nullptr || facts_.host_fills(*from);
  why = kUnlooked;
  if (from_host && !facts_.payload_is_known(index)) return false;
  if (copy.height != 1) return false;
  const std::uint64_t begin = to.offset, end = begin + copy.width;
  if (from_host) {
    for (const PointerWord& pointer : table_.pointers(index))
      if (pointer.at >= kAtWords) result.places[begin + (*copy.words)[pointer.at - kAtWords].offset] = {pointer.object};
    result.filled[begin] = end;
  } else {
    why = doubt(from->object);
    if (!why.empty()) return false;
    const Contents& here = contents(from->object);
    why = kByOther;
    if (!here.places.empty() && (to.offset - from->offset) % 8 != 0) return false;
    for (const auto& [at, place] : here.places)
      if (at >= from->offset && at + 8 <= from->offset + copy.width) result.places[at - from->offset + begin] = place;
    result.somewhere = here.somewhere;
    result.old = here.old;
    result.fillers = here.fillers;
    for (const auto& [first, last] : here.filled) {
      const std::uint64_t lower = std::max(first, from->offset), upper = std::min(last, from->offset + copy.width);
      if (lower < upper) result.filled[lower - from->offset + begin] = upper - from->offset + begin;
    }
  }
  result.fillers.insert(op);
  return true;
}

void PointersInMemory::copy_inside(std::uint32_t op) {
  const std::uint32_t index = step_.calls[op];
  const PointerWord* to = facts_.pointer_at(index, kAtDst);
  if (to == nullptr) return;
  Contents& there = contents(to->object);
  Contents brought;
  std::string_view why;
  if (!arriving(op, *to, brought, why)) return there.become_unknown(why);
  if (facts_.covers(index, *to)) {
    there = std::move(brought);
    taints_.clear(to->object, index);
  } else {
    there.merge(brought, to->offset, to->offset + trace_.calls[index].width);
    if (there.overflows()) return there.become_unknown(kByOther);
  }
  if (visited_.contains(facts_.slot(to->object))) compare_fillers(to->object);
}

void PointersInMemory::set_inside(std::uint32_t op) {
  const std::uint32_t index = step_.calls[op];
  const TraceCall& set = trace_.calls[index];
  const PointerWord* to = facts_.pointer_at(index, kAtDst);
  if (to == nullptr) return;
  Contents& there = contents(to->object);
  if (facts_.covers(index, *to)) {
    there = {};
    taints_.clear(to->object, index);
  }
  if (set.height != 1) return;
  const std::uint64_t begin = to->offset, end = begin + set.width;
  there.erase_places(begin, end);
  there.fill(begin, end);
  there.fillers.insert(op);
  if (visited_.contains(facts_.slot(to->object))) compared_[op] = 1;
}

void PointersInMemory::kernel_not_compared(std::uint32_t call) {
  const PointerFlow flow = flows_.any(call);
  const bool moves = flows_.leaks(trace_.calls[call].function) ||
                     (flow.from && (facts_.reads_host() || taints_.any() || contents_.any_pointers()));
  if ((flow.keeps && flow.is_stored) || ((flow.keeps || flow.to) && moves)) taints_.taint_all(call, kByKernel);
}

PointersInMemory::Moved PointersInMemory::moved_by(std::span<const Followed> uses) {
  Moved moved;
  for (const Followed& use : uses) {
    if (!use.flow.from) continue;
    if (moved.why.empty()) moved.why = doubt(use.object);
    const Contents* found = contents_.find(facts_.slot(use.object));
    if (found == nullptr) continue;
    const std::vector<std::uint32_t> placed = found->placed();
    if (!placed.empty()) moved.bundles.insert(contents_.bundle(placed));
    moved.bundles.insert(found->somewhere.begin(), found->somewhere.end());
    moved.carried |= found->carried();
    moved.fillers.insert(found->fillers.begin(), found->fillers.end());
  }
  return moved;
}

void PointersInMemory::kernel_inside(std::uint32_t op) {
  const std::uint32_t index = step_.calls[op];
  const TraceCall& launch = trace_.calls[index];
  by_sight_[op] = flows_.by_sight(index);
  // The parameters of an op that keeps its place among all others are compared with nothing. A node of a graph has
  // those that it has.
  if (outcome_->known[op] == 0) {
    if (!is_node_of_a_graph(launch)) kernel_not_compared(index);
    return kernel_outside(index);
  }
  std::vector<Followed> uses;
  std::vector<std::uint32_t> own;
  for (const PointerWord& pointer : table_.pointers(index)) {
    uses.push_back({pointer.object, flows_.of(index, pointer.at)});
    if (uses.back().flow.is_stored) own.push_back(pointer.object);
  }
  uses.insert(uses.end(), outcome_->followed[op].begin(), outcome_->followed[op].end());
  Moved moved = moved_by(uses);
  if (flows_.leaks(launch.function) && !uses.empty()) moved.why = kByKernel;
  const std::uint32_t given = own.empty() ? kNone : contents_.bundle(own);
  for (const Followed& use : uses) {
    const bool keeps = use.flow.keeps && !own.empty();
    const bool gets = (use.flow.to || use.flow.keeps) && !moved.nothing();
    if (!keeps && !gets) continue;
    Contents& there = contents(use.object);
    if (there.unknown) continue;
    if (gets && !moved.why.empty()) {
      there.become_unknown(moved.why);
      continue;
    }
    if (keeps) there.somewhere.insert(given);
    if (gets) {
      there.somewhere.insert(moved.bundles.begin(), moved.bundles.end());
      there.old |= moved.carried;
      there.fillers.insert(moved.fillers.begin(), moved.fillers.end());
    }
    if (there.overflows()) there.become_unknown(kTooMuch);
  }
}

}  // namespace nimble::analyzer
