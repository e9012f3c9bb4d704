#include "analyzer/access/conflicts.h"

#include <algorithm>
#include <span>

#include "analyzer/access/kernel_params.h"

namespace nimble::analyzer {
namespace {

// Whether the access is to the object that the pointer names, not to one that a table there leads to.
bool is_of(const Access& access, const PointerWord* pointer) {
  return pointer != nullptr && access.at == pointer->at && access.object == pointer->object;
}

// It was written through one of these words. If the source says that one of them is written, that one accounts for it.
bool explains(const OpQuestion& op, const WrittenWords& written, std::span<const Access> found) {
  return std::ranges::any_of(written.at, [&](std::uint32_t at) {
    const PointerWord* named = pointer_at(op, at);
    return std::ranges::any_of(found, [&](const Access& each) { return is_of(each, named) && each.writes; });
  });
}

}  // namespace

// Whether the source explains all that was seen of the kernel, by what it says about each launch: then it knows how
// this launch differs, for example by using less of a list in its parameters.
bool ConflictFinder::explains_all(const OpQuestion& op, AccessSource& speaker) {
  const auto [answer, is_new] = explains_all_.emplace(std::pair{op.call.function, &speaker}, true);
  if (!is_new) return answer->second;
  const auto explained = [&](const WrittenWords& written) {
    return std::ranges::all_of(written.calls, [&](std::uint32_t index) {
      const OpQuestion then{trace_, trace_.calls[index], op.objects.pointers(index), op.objects,
                            op.objects.unsure(index)};
      std::vector<Access> found;
      std::string why_not;
      return speaker.ask(then, found, why_not) && explains(then, written, found);
    });
  };
  return answer->second = std::ranges::all_of(seen_.of(op.call.function), explained);
}

void ConflictFinder::correct(const OpQuestion& op, AccessSource& speaker, std::vector<Access>& found,
                             std::size_t first) {
  added_.clear();
  if (op.call.kind != CallKind::launch || speaker.evidence() == Evidence::observed) return;
  for (const WrittenWords& written : seen_.of(op.call.function)) {
    // If a word that was a pointer then is not one now, it may have been that one.
    const auto is_here = [&](std::uint32_t at) { return pointer_at(op, at) != nullptr; };
    if (!std::ranges::all_of(written.at, is_here) || explains(op, written, std::span(found).subspan(first)) ||
        explains_all(op, speaker))
      continue;
    for (std::uint32_t at : written.at) {
      bool touched = false;
      for (std::size_t i = first; i < found.size(); ++i) {
        if (!is_of(found[i], pointer_at(op, at))) continue;
        found[i].reads = found[i].writes = touched = true;
      }
      note(op, speaker, written, at, touched);
      if (touched) continue;
      Access access;
      access.object = pointer_at(op, at)->object;
      access.whole = access.reads = access.writes = true;
      access.at = at;
      found.push_back(access);
      added_.insert(at);
    }
  }
}

void ConflictFinder::note(const OpQuestion& op, AccessSource& speaker, const WrittenWords& written, std::uint32_t at,
                          bool touched) {
  if (!known_.emplace(op.call.function, at).second) return;
  EvidenceConflict conflict;
  conflict.function = op.call.function;
  conflict.at = at;
  const auto& params = *trace_.functions[op.call.function].params;
  while (conflict.parameter + 1 < params.size() && params[conflict.parameter + 1].offset <= at) ++conflict.parameter;
  conflict.evidence = speaker.evidence();
  conflict.basis = speaker.basis(op);
  conflict.touched = touched;
  conflict.launches = static_cast<std::uint32_t>(written.calls.size());
  conflict.compared = seen_.launches(op.call.function);
  conflict.first_seq = trace_.calls[written.calls.front()].seq;
  conflicts_.push_back(std::move(conflict));
}

}  // namespace nimble::analyzer
