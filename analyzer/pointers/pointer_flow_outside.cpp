// What calls outside of the step do to the pointers in memory.
#include <algorithm>
#include <set>

#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {

void PointersInMemory::outside(std::uint32_t index) {
  const TraceCall& call = trace_.calls[index];
  if (call.result != 0) return;
  const auto taint = [&](const PointerWord& pointer) { taints_.taint(facts_.slot(pointer.object), kByOther, index); };
  switch (call.kind) {
    case CallKind::context_synchronize:
      return completion_.note_wait(call);
    case CallKind::copy:
      return copy_outside(index);
    case CallKind::set:
      if (const PointerWord* to = facts_.pointer_at(index, kAtDst); to != nullptr && facts_.covers(index, *to))
        taints_.clear(to->object, index);
      return;
    case CallKind::launch:
      return kernel_outside(index);
    case CallKind::graph_launch:
      if (call.graph == kNone || !trace_.graphs[call.graph].known) return taints_.taint_all(index, kByOther);
      for (const PointerWord& pointer : facts_.all_words(index)) {
        const auto& list = trace_.graphs[call.graph].accesses;
        if (pointer.at >= list.size() || list[pointer.at].writes) taint(pointer);
      }
      return;
    case CallKind::opaque:
      if (call.symbol == kNotRecorded) completion_.note_unrecorded();
      if (!call.accesses) return taints_.taint_all(index, kByOther);
      for (const PointerWord& pointer : table_.pointers(index))
        if ((*call.accesses)[pointer.at].writes) taint(pointer);
      return;
    default:
      return;
  }
}

void PointersInMemory::copy_outside(std::uint32_t call) {
  const PointerWord* to = facts_.pointer_at(call, kAtDst);
  const PointerWord* from = facts_.pointer_at(call, kAtSrc);
  if (to == nullptr) return;
  std::string_view why;
  if (from == nullptr || facts_.host_fills(*from)) {
    const auto pointers = table_.pointers(call);
    if (!facts_.payload_is_known(call))
      why = kUnlooked;
    else if (!pointers.empty() && pointers.back().at >= kAtWords)
      why = kBefore;
  } else if (may_hold_pointers(from->object)) {
    why = kBefore;
  }
  if (!why.empty())
    taints_.taint(facts_.slot(to->object), why, call);
  else if (facts_.covers(call, *to))
    taints_.clear(to->object, call);
}

void PointersInMemory::kernel_outside(std::uint32_t call) {
  const TraceCall& launch = trace_.calls[call];
  const TraceFunction& function = trace_.functions[launch.function];
  const std::vector<PointerWord> pointers = facts_.all_words(call);
  if (!function.params || (launch.params.empty() && !function.params->empty()))
    return taints_.taint_all(call, kByKernel);
  bool moves = flows_.leaks(launch.function) && !pointers.empty();
  std::set<std::uint32_t> stored;
  for (const PointerWord& pointer : pointers) {
    const PointerFlow flow = flows_.of(call, pointer.at);
    if (flow.is_stored) stored.insert(facts_.slot(pointer.object));
    moves |= flow.from && may_hold_pointers(pointer.object);
  }
  for (const PointerWord& pointer : pointers) {
    const PointerFlow flow = flows_.of(call, pointer.at);
    const std::uint32_t slot = facts_.slot(pointer.object);
    // A pointer to the object that it lies in leads nowhere else.
    const bool keeps = flow.keeps && !(stored.empty() || (stored.size() == 1 && stored.contains(slot)));
    if (keeps || ((flow.to || flow.keeps) && moves)) taints_.taint(slot, kByKernel, call);
  }
  believe_probe(call);
}

// Not for the step's own launches: in another repeat something else may lie there. Nor for what other ops were still to
// write when memory was searched.
void PointersInMemory::believe_probe(std::uint32_t call) {
  if (seen_ == nullptr || call >= step_.calls.front()) return;
  const auto over = [&](std::uint32_t other) { return completion_.is_over(other, call); };
  if (!taints_.all_of_any(over)) return;
  for (const PointerWord& pointer : table_.pointers(call))
    if (table_.objects()[pointer.object].memory != MemoryKind::mapped && seen_->was_plain(call, pointer.object) &&
        taints_.all_of(pointer.object, over))
      taints_.clear(pointer.object, call);
}

}  // namespace nimble::analyzer
