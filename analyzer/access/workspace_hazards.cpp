#include "analyzer/access/workspace_hazards.h"

#include <algorithm>
#include <set>
#include <vector>

namespace nimble::analyzer {

namespace {

// Whether all that the op stores is one value, over and over: a set, or PyTorch's kernel for it. Memory that holds
// nothing else may be a library's counters and sums, which its kernels leave as they found them.
bool only_clears(const Trace& trace, const TraceCall& call) {
  if (call.kind == CallKind::set) return true;
  return call.kind == CallKind::launch && call.function != kNone &&
         trace.functions[call.function].name.find("FillFunctor") != std::string::npos;
}

// What the whole trace has written to, by object, as far as is known.
class Filled {
 public:
  Filled(const Trace& trace, const ObjectTable& table, const Observations& seen)
      : trace_(trace), table_(table), seen_(seen), filled_(table.objects().size()) {
    for (std::size_t i = 0; i < filled_.size(); ++i) {
      const Object& object = table.objects()[i];
      const bool of_device = object.memory == MemoryKind::device || object.memory == MemoryKind::stream_ordered;
      filled_[i] = !of_device || object.birth == kNone;
    }
    for (std::uint32_t call = 0; call < trace.calls.size(); ++call) {
      if (trace.calls[call].result != 0) continue;
      if (is_op(trace.calls[call].kind)) fill(call, is_node_of_a_graph(trace.calls[call]));
      note_memory_of_captures(call);
    }
  }

  bool operator[](std::uint32_t object) const { return filled_[object]; }

 private:
  // Memory of a capture is another object each time that it is recorded.
  void note_memory_of_captures(std::uint32_t index) {
    const TraceCall& call = trace_.calls[index];
    if (call.kind == CallKind::free || call.kind == CallKind::free_async) by_nodes_.erase(call.address);
    if (!is_allocation(call.kind)) return;
    if (call.symbol != kMemoryOfACapture) {
      by_nodes_.erase(call.address);
    } else if (by_nodes_.contains(call.address)) {
      for (const PointerWord& pointer : table_.pointers(index)) filled_[pointer.object] = true;
    }
  }

  void mark(std::uint32_t object, bool by_node) {
    const Object& known = table_.objects()[object];
    if (!by_node) {
      filled_[object] = true;
    } else if (known.birth != kNone && trace_.calls[known.birth].symbol == kMemoryOfACapture) {
      filled_[object] = true;
      by_nodes_.insert(known.base);
    }
  }

  void fill(std::uint32_t index, bool by_node) {
    const TraceCall& call = trace_.calls[index];
    if (only_clears(trace_, call)) return;
    const auto pointers = table_.pointers(index);
    switch (call.kind) {
      case CallKind::alloc_async:
      case CallKind::free_async:
        return;
      case CallKind::copy:
        for (const PointerWord& pointer : pointers)
          if (pointer.at == kAtDst) mark(pointer.object, by_node);
        return;
      case CallKind::launch:
        break;
      default:
        for (const PointerWord& pointer : pointers) mark(pointer.object, by_node);
        return;
    }
    if (seen_.compared(index)) {
      const Sight sight = seen_.look(index);
      for (std::size_t i = 0; i < pointers.size(); ++i)
        if (sight.written[i] || !sight.whole) mark(pointers[i].object, by_node);
      return;
    }
    // One that was not compared does what other launches of its kernel were seen to do.
    const auto known = seen_.of(call.function);
    for (const PointerWord& pointer : pointers) {
      const bool writes = std::any_of(known.begin(), known.end(), [&](const WrittenWords& words) {
        return std::find(words.at.begin(), words.at.end(), pointer.at) != words.at.end();
      });
      if (writes || seen_.launches(call.function) == 0) mark(pointer.object, by_node);
    }
  }

  const Trace& trace_;
  const ObjectTable& table_;
  const Observations& seen_;
  std::vector<bool> filled_;
  std::set<std::uint64_t> by_nodes_;  // memory of captures, by address, that nodes have filled
};

}  // namespace

void find_workspace_hazards(const Trace& trace, const ObjectTable& table, const Observations& seen,
                            const StepObjects& objects, std::span<const std::uint32_t> calls, StepAccesses& accesses) {
  if (!seen.any()) return;
  std::vector<bool> written(objects.objects.size());  // by some op of the step
  for (std::uint32_t op = 0; op < accesses.ops.size(); ++op) {
    if (only_clears(trace, trace.calls[calls[op]])) continue;
    for (const Access& access : accesses.of(op))
      if (access.writes) written[access.object] = true;
    if (accesses.ops[op].role != OpRole::barrier) continue;
    for (const PointerWord& pointer : table.pointers(calls[op])) written[objects.find(pointer.object)] = true;
  }
  const Filled filled(trace, table, seen);
  for (Access& access : accesses.all)
    if (access.evidence == Evidence::observed && !access.writes && !written[access.object] &&
        (objects.objects[access.object].step_local || !filled[objects.objects[access.object].id]))
      access.writes = true;
}

}  // namespace nimble::analyzer
