#include "analyzer/access/access.h"

#include <algorithm>
#include <unordered_map>

#include "analyzer/access/conflicts.h"
#include "analyzer/access/launch_of.h"
#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {
namespace {

// Puts accesses through several pointers to the same whole object together.
void merge_whole(std::vector<Access>& all, std::size_t first) {
  std::size_t kept = first;
  for (std::size_t i = first; i < all.size(); ++i) {
    std::size_t same = first;
    const auto is_same = [&](const Access& other) {
      return other.whole && all[i].whole && other.object == all[i].object && other.by_chance == all[i].by_chance;
    };
    while (same < kept && !is_same(all[same])) ++same;
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

// Asks the sources about one op after another.
class Inference {
 public:
  Inference(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
            std::span<const std::unique_ptr<AccessSource>> sources, PointersInMemory* pointers,
            ConflictFinder* conflicts, KnownKernels* known, std::size_t ops)
      : trace_(trace),
        table_(table),
        objects_(objects),
        sources_(sources),
        pointers_(pointers),
        conflicts_(conflicts),
        launches_(trace, known) {
    result_.ops.resize(ops);
    result_.no_pointers.resize(ops);
    result_.pinned.resize(ops);
  }

  void infer(std::uint32_t op, std::uint32_t index) {
    if (pointers_ != nullptr) pointers_->reach(op);
    OpAccesses& entry = result_.ops[op];
    entry.first = static_cast<std::uint32_t>(result_.all.size());
    entry.role = role_of(trace_, table_, objects_, index);
    if (entry.role != OpRole::accesses) {
      entry.evidence = Evidence::exact;
      return;
    }
    OpQuestion question{trace_, trace_.calls[index], table_.pointers(index), table_, table_.unsure(index), op, index};
    question.known = launches_.of(question);
    AccessSource* const speaker = ask(question);
    if (speaker == nullptr) {
      entry.role = OpRole::barrier;
      if (why_.empty()) why_ = "what it touches cannot be known";
      entry.why = reasons_.emplace(why_, static_cast<std::uint32_t>(reasons_.size())).first->second;
      if (entry.why == result_.reasons.size()) result_.reasons.push_back(why_);
      return;
    }
    if (pointers_ != nullptr) pointers_->did(op, true);
    if (conflicts_ != nullptr) conflicts_->correct(question, *speaker, result_.all, entry.first);
    entry.evidence = speaker->evidence();
    entry.from_code = speaker->from_code();
    // What the step never names nothing in it is ordered by.
    const auto unnamed = [&](const Access& access) { return objects_.find(access.object) == kNone; };
    const auto first = result_.all.begin() + entry.first;
    result_.all.erase(std::remove_if(first, result_.all.end(), unnamed), result_.all.end());
    for (std::size_t i = entry.first; i < result_.all.size(); ++i) {
      Access& access = result_.all[i];
      access.evidence = entry.evidence;
      access.object = objects_.find(access.object);
      if (access.whole) access.rect = {0, objects_.objects[access.object].size, 0, 1};
    }
    speaker->pin(question, result_.pinned[op]);
    find_numbers(question, *speaker);
    merge_whole(result_.all, entry.first);
    entry.count = static_cast<std::uint32_t>(result_.all.size()) - entry.first;
  }

  StepAccesses take() {
    if (pointers_ == nullptr || !pointers_->asked()) return std::move(result_);
    pointers_->reach(static_cast<std::uint32_t>(result_.ops.size()));
    result_.compared = pointers_->compared();
    result_.carries = pointers_->carries();
    for (std::uint32_t op = 0; op < result_.ops.size(); ++op)
      result_.pinned[op].shape |= pointers_->by_sight()[op] != 0;
    return std::move(result_);
  }

 private:
  // The strongest source that answers; null, and the reasons in why_, if none does.
  AccessSource* ask(const OpQuestion& question) {
    why_.clear();
    for (const auto& source : sources_) {
      why_not_.clear();
      if (source->ask(question, result_.all, why_not_)) return source.get();
      if (!why_not_.empty()) why_ += (why_.empty() ? "" : "; ") + why_not_;
    }
    return nullptr;
  }

  void find_numbers(const OpQuestion& question, AccessSource& speaker) {
    if (question.call.kind != CallKind::launch || question.call.params.empty()) return;
    for (const ParamLayout& param : *trace_.functions[question.call.function].params)
      for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8)
        if (!speaker.is_pointer(question, at) && !(conflicts_ != nullptr && conflicts_->added(at)))
          result_.no_pointers[question.op].push_back(at);
  }

  const Trace& trace_;
  const ObjectTable& table_;
  const StepObjects& objects_;
  const std::span<const std::unique_ptr<AccessSource>> sources_;
  PointersInMemory* const pointers_;
  ConflictFinder* const conflicts_;
  KnownLaunches launches_;
  std::unordered_map<std::string, std::uint32_t> reasons_;
  std::string why_, why_not_;
  StepAccesses result_;
};

}  // namespace

StepAccesses infer_accesses(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                            std::span<const std::uint32_t> calls,
                            std::span<const std::unique_ptr<AccessSource>> sources, PointersInMemory* pointers,
                            ConflictFinder* conflicts, KnownKernels* known) {
  Inference inference(trace, table, objects, sources, pointers, conflicts, known, calls.size());
  for (std::uint32_t op = 0; op < calls.size(); ++op) inference.infer(op, calls[op]);
  return inference.take();
}

}  // namespace nimble::analyzer
