#include "analyzer/access/access.h"

#include <unordered_map>

#include "analyzer/access/conflicts.h"
#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {
namespace {

// Puts accesses through several pointers to the same whole object together.
void merge_whole(std::vector<Access>& all, std::size_t first) {
  std::size_t kept = first;
  for (std::size_t i = first; i < all.size(); ++i) {
    std::size_t same = first;
    while (same < kept && !(all[same].whole && all[i].whole && all[same].object == all[i].object)) ++same;
    if (same < kept) {
      all[same].reads |= all[i].reads;
      all[same].writes |= all[i].writes;
    } else {
      all[kept++] = all[i];
    }
  }
  all.resize(kept);
}

OpRole role_of(const Trace& trace, const ObjectTable& table, const StepObjects& objects, std::uint32_t call) {
  switch (trace.calls[call].kind) {
    case CallKind::event_record:
      return OpRole::record;
    case CallKind::event_wait:
      return OpRole::wait;
    case CallKind::alloc_async:
    case CallKind::free_async:
      for (const PointerWord& pointer : table.pointers(call))
        if (objects.objects[objects.find(pointer.object)].step_local) return OpRole::none;
      return OpRole::accesses;
    default:
      return OpRole::accesses;
  }
}

}  // namespace

StepAccesses infer_accesses(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                            std::span<const std::uint32_t> calls,
                            std::span<const std::unique_ptr<AccessSource>> sources, HeldPointers* held,
                            ConflictFinder* conflicts) {
  StepAccesses result;
  result.ops.resize(calls.size());
  result.no_pointers.resize(calls.size());
  result.pinned.resize(calls.size());
  std::unordered_map<std::string, std::uint32_t> reasons;
  std::string why, why_not;
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const TraceCall& call = trace.calls[calls[op]];
    if (held != nullptr) held->reach(op);
    OpAccesses& entry = result.ops[op];
    entry.first = static_cast<std::uint32_t>(result.all.size());
    entry.role = role_of(trace, table, objects, calls[op]);
    if (entry.role != OpRole::accesses) {
      entry.evidence = Evidence::exact;
      continue;
    }
    OpQuestion question{trace, call, table.pointers(calls[op]), table, table.unsure(calls[op]), op, calls[op]};
    AccessSource* speaker = nullptr;
    why.clear();
    for (const auto& source : sources) {
      why_not.clear();
      if (source->ask(question, result.all, why_not)) {
        speaker = source.get();
        break;
      }
      if (!why_not.empty()) why += (why.empty() ? "" : "; ") + why_not;
    }
    if (speaker == nullptr) {
      entry.role = OpRole::barrier;
      if (why.empty()) why = "what it touches cannot be known";
      entry.why = reasons.emplace(why, static_cast<std::uint32_t>(reasons.size())).first->second;
      if (entry.why == result.reasons.size()) result.reasons.push_back(why);
      continue;
    }
    if (held != nullptr) held->did(op, true);
    if (conflicts != nullptr) conflicts->correct(question, *speaker, result.all, entry.first);
    entry.evidence = speaker->evidence();
    entry.from_code = speaker->from_code();
    for (std::size_t i = entry.first; i < result.all.size(); ++i) {
      Access& access = result.all[i];
      access.evidence = entry.evidence;
      access.object = objects.find(access.object);
      if (access.whole) access.region = {0, objects.objects[access.object].size, 0, 1};
    }
    speaker->pin(question, result.pinned[op]);
    if (call.kind == CallKind::launch && !call.params.empty())
      for (const ParamLayout& param : *trace.functions[call.function].params)
        for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8)
          if (!speaker->is_pointer(question, at) && !(conflicts != nullptr && conflicts->added(at)))
            result.no_pointers[op].push_back(at);
    merge_whole(result.all, entry.first);
    entry.count = static_cast<std::uint32_t>(result.all.size()) - entry.first;
  }
  if (held != nullptr && held->asked()) {
    held->reach(static_cast<std::uint32_t>(calls.size()));
    result.compared = held->compared();
    result.carries = held->carries();
    for (std::uint32_t op = 0; op < calls.size(); ++op) result.pinned[op].shape |= held->by_sight()[op] != 0;
  }
  return result;
}

}  // namespace nimble::analyzer
