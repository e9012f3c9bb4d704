#include "analyzer/memory/step_objects.h"

namespace nimble::analyzer {

StepObjects objects_of_step(const Trace& trace, const ObjectTable& table, std::span<const std::uint32_t> calls) {
  StepObjects result;
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const TraceCall& call = trace.calls[calls[op]];
    for (const PointerWord& pointer : table.pointers(calls[op])) {
      auto [entry, is_new] = result.index_of.emplace(pointer.object, static_cast<std::uint32_t>(result.objects.size()));
      if (is_new) {
        const Object& object = table.objects()[pointer.object];
        StepObject added;
        added.id = pointer.object;
        added.size = object.size;
        added.memory = object.memory;
        result.objects.push_back(added);
      }
      StepObject& object = result.objects[entry->second];
      if (call.kind == CallKind::alloc_async) object.alloc = op;
      if (call.kind == CallKind::free_async) object.free = op;
    }
  }
  for (StepObject& object : result.objects) {
    if (object.alloc == kNone || object.free == kNone) continue;
    const TraceCall& alloc = trace.calls[calls[object.alloc]];
    const TraceCall& free = trace.calls[calls[object.free]];
    object.step_local =
        !alloc.own_pool && alloc.size > 0 && trace.streams[alloc.stream].context == trace.streams[free.stream].context;
  }
  return result;
}

}  // namespace nimble::analyzer
