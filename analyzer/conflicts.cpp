#include "analyzer/conflicts.h"

#include <algorithm>

#include "analyzer/kernel_params.h"

namespace nimble::analyzer {
namespace {

// Whether the access is to the object that the pointer names, and not to one that a table behind it leads to.
bool is_of(const Access& access, const PointerWord* pointer) {
  return pointer != nullptr && access.at == pointer->at && access.object == pointer->object;
}

}  // namespace

void ConflictFinder::correct(const OpQuestion& op, AccessSource& speaker, std::vector<Access>& found,
                             std::size_t first) {
  added_.clear();
  if (op.call.kind != CallKind::launch || speaker.evidence() == Evidence::observed) return;
  for (const WrittenWords& written : seen_.of(op.call.function)) {
    // It was written through one of these words. Where the source has one of them written, that will have been it.
    bool all_here = true, explained = false;
    for (std::uint32_t at : written.at) {
      const PointerWord* named = pointer_at(op, at);
      all_here = all_here && named != nullptr;
      explained = explained || std::any_of(found.begin() + static_cast<std::ptrdiff_t>(first), found.end(),
                                           [&](const Access& each) { return is_of(each, named) && each.writes; });
    }
    // Where a pointer of then is none now, it may have been that one.
    if (!all_here || explained) continue;
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
  conflict.launches = written.launches;
  conflict.compared = seen_.launches(op.call.function);
  conflict.first_seq = written.first_seq;
  conflicts_.push_back(std::move(conflict));
}

}  // namespace nimble::analyzer
