// HeldPointers in the step: what becomes of the pointers in memory when one of its ops is done.
#include <algorithm>
#include <utility>

#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {
namespace {

void fill(std::map<std::uint64_t, std::uint64_t>& filled, std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto at = filled.upper_bound(begin);
  if (at != filled.begin() && std::prev(at)->second >= begin) --at;
  while (at != filled.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = filled.erase(at);
  }
  filled[begin] = end;
}

}  // namespace

void HeldPointers::copy_inside(std::uint32_t op) {
  const std::uint32_t index = calls_[op];
  const TraceCall& copy = trace_.calls[index];
  const PointerWord* to = pointer_at(index, kAtDst);
  const PointerWord* from = pointer_at(index, kAtSrc);
  if (to == nullptr) return;
  Held& there = held(to->object);
  const bool all = covers(index, *to);
  const auto no = [&](std::string_view why) { there.become_unknown(why); };
  const bool from_host = from == nullptr || host_fills(table_.objects()[from->object].memory);
  if (from_host && !payload_is_known(index)) return no(kUnlooked);
  if (copy.height != 1) return no(kUnlooked);
  const std::uint64_t begin = to->offset, end = begin + copy.width;
  Held arriving;
  if (from_host) {
    for (const PointerWord& pointer : table_.pointers(index))
      if (pointer.at >= kAtWords)
        arriving.places[begin + (*copy.words)[pointer.at - kAtWords].offset] = {pointer.object};
    arriving.filled[begin] = end;
  } else {
    if (const std::string_view why = doubt(from->object); !why.empty()) return no(why);
    const Held& here = held(from->object);
    if (!here.places.empty() && (to->offset - from->offset) % 8 != 0) return no(kByOther);
    for (const auto& [at, place] : here.places)
      if (at >= from->offset && at + 8 <= from->offset + copy.width) arriving.places[at - from->offset + begin] = place;
    arriving.somewhere = here.somewhere;
    arriving.old = here.old;
    arriving.fillers = here.fillers;
    for (const auto& [first, last] : here.filled) {
      const std::uint64_t lower = std::max(first, from->offset), upper = std::min(last, from->offset + copy.width);
      if (lower < upper) arriving.filled[lower - from->offset + begin] = upper - from->offset + begin;
    }
  }
  arriving.fillers.insert(op);
  if (all) {
    there = std::move(arriving);
    clear(to->object, index);
  } else {
    there.places.erase(there.places.lower_bound(begin), there.places.lower_bound(end));
    there.places.insert(arriving.places.begin(), arriving.places.end());
    there.somewhere.insert(arriving.somewhere.begin(), arriving.somewhere.end());
    there.old |= arriving.old;
    there.fillers.insert(arriving.fillers.begin(), arriving.fillers.end());
    for (const auto& [first, last] : arriving.filled) fill(there.filled, first, last);
    if (overflows(there)) no(kByOther);
  }
  if (visited_.contains(slot(to->object)))
    for (const std::uint32_t filler : held(to->object).fillers) compared_[filler] = 1;
}

void HeldPointers::kernel_inside(std::uint32_t op) {
  const std::uint32_t index = calls_[op];
  const TraceCall& launch = trace_.calls[index];
  by_sight_[op] = flows_.by_sight(index);
  // The parameters of what keeps its place among all others are compared with nothing. A node of a graph has those that
  // it has.
  if (outcome_->known[op] == 0) {
    if (!is_node_of_a_graph(launch)) kernel_not_compared(index);
    return kernel_outside(index);
  }
  struct Use {
    std::uint32_t object;
    PointerFlow flow;
  };
  std::vector<Use> uses;
  for (const PointerWord& pointer : table_.pointers(index))
    uses.push_back({pointer.object, flows_.of(index, pointer.at)});
  std::vector<std::uint32_t> own;
  std::set<std::uint32_t> moved, fillers;
  bool carried = false;
  std::string_view why;
  for (const Use& use : uses)
    if (use.flow.is_stored) own.push_back(use.object);
  for (const Followed& followed : outcome_->followed[op]) uses.push_back({followed.object, followed.flow});
  for (const Use& use : uses) {
    if (!use.flow.from) continue;
    if (why.empty()) why = doubt(use.object);
    const auto found = held_.find(slot(use.object));
    if (found == held_.end()) continue;
    const std::vector<std::uint32_t> placed = found->second.placed();
    if (!placed.empty()) moved.insert(bundle(placed));
    moved.insert(found->second.somewhere.begin(), found->second.somewhere.end());
    carried |= found->second.carried();
    fillers.insert(found->second.fillers.begin(), found->second.fillers.end());
  }
  if (flows_.leaks(launch.function) && !uses.empty()) why = kByKernel;
  const std::uint32_t given = own.empty() ? kNone : bundle(own);
  for (const Use& use : uses) {
    const bool keeps = use.flow.keeps && !own.empty();
    const bool gets = (use.flow.to || use.flow.keeps) && (!why.empty() || !moved.empty() || !fillers.empty());
    if (!keeps && !gets) continue;
    Held& there = held(use.object);
    if (there.unknown) continue;
    if (gets && !why.empty()) {
      there.become_unknown(why);
      continue;
    }
    if (keeps) there.somewhere.insert(given);
    if (gets) {
      there.somewhere.insert(moved.begin(), moved.end());
      there.old |= carried;
      there.fillers.insert(fillers.begin(), fillers.end());
    }
    if (overflows(there)) there.become_unknown(kTooMuch);
  }
}

void HeldPointers::inside(std::uint32_t op) {
  const std::uint32_t index = calls_[op];
  const TraceCall& call = trace_.calls[index];
  if (call.result != 0) return;
  const bool copies = call.kind == CallKind::copy || call.kind == CallKind::set;
  if (op < step_.uncompared.size() && step_.uncompared[op] != 0) {
    // What brings pointers, or overwrites them, has to do so where it was recorded to, whether anybody looks there or
    // not.
    if (const PointerWord* const to = copies ? pointer_at(index, kAtDst) : nullptr)
      compared_[op] |= !host_fills(table_.objects()[to->object].memory);
    if (!copies || !call.words) {
      const bool could_clear = std::exchange(may_clear_, false);
      if (call.kind == CallKind::launch && !is_node_of_a_graph(call)) {
        by_sight_[op] = flows_.by_sight(index);
        kernel_not_compared(index);
      }
      outside(index);
      may_clear_ = could_clear;
      return;
    }
  }
  switch (call.kind) {
    case CallKind::copy:
      return copy_inside(op);
    case CallKind::set: {
      const PointerWord* to = pointer_at(index, kAtDst);
      if (to == nullptr) return;
      Held& there = held(to->object);
      if (covers(index, *to)) {
        there = {};
        clear(to->object, index);
      }
      if (call.height != 1) return;
      const std::uint64_t begin = to->offset, end = begin + call.width;
      there.places.erase(there.places.lower_bound(begin), there.places.lower_bound(end));
      fill(there.filled, begin, end);
      there.fillers.insert(op);
      if (visited_.contains(slot(to->object))) compared_[op] = 1;
      return;
    }
    case CallKind::launch:
      return kernel_inside(op);
    default:
      return outside(index);
  }
}

}  // namespace nimble::analyzer
