#include "analyzer/step/marked_steps.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analyzer/base/hash.h"

namespace nimble::analyzer {
namespace {

bool is_mark(CallKind kind) { return kind == CallKind::step_begin || kind == CallKind::step_end; }

// The thread whose marks count; kNone if there are none.
std::uint32_t marking_thread(const Trace& trace) {
  std::map<std::uint32_t, std::uint64_t> marks;
  for (const TraceCall& call : trace.calls)
    if (call.kind == CallKind::step_begin) ++marks[call.thread];
  const auto most =
      std::max_element(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == marks.end() ? kNone : most->first;
}

struct Occurrence {
  std::uint32_t begin = 0, end = 0;  // indices into the ops
  const std::string* name = nullptr;
};

std::vector<Occurrence> occurrences(const Trace& trace, std::span<const std::uint32_t> ops) {
  const std::uint32_t thread = marking_thread(trace);
  std::vector<Occurrence> found;
  if (thread == kNone) return found;
  const std::string* open = nullptr;
  std::uint32_t begin = 0, op = 0;
  for (std::uint32_t i = 0; i < trace.calls.size(); ++i) {
    const TraceCall& call = trace.calls[i];
    if (!is_mark(call.kind) || call.thread != thread) continue;
    while (op < ops.size() && ops[op] < i) ++op;
    if (open && op > begin) found.push_back({begin, op, open});
    open = call.kind == CallKind::step_begin ? &call.note : nullptr;
    begin = op;
  }
  return found;  // a step that is cut off by the end of the trace does not count
}

}  // namespace

std::optional<MarkedSteps> find_marked_steps(const Trace& trace, std::span<const std::uint32_t> ops,
                                             std::span<const std::uint64_t> signatures) {
  const std::vector<Occurrence> all = occurrences(trace, ops);
  if (all.empty()) return std::nullopt;
  using Kind = std::tuple<std::string, std::uint32_t, std::uint64_t>;  // name, ops, hash of their signatures
  std::map<Kind, std::vector<std::uint32_t>> kinds;
  for (const Occurrence& one : all) {
    Hasher hash;
    for (std::uint32_t op = one.begin; op < one.end; ++op) hash.add(signatures[op]);
    kinds[{*one.name, one.end - one.begin, hash.value()}].push_back(one.begin);
  }
  const auto rank = [](const auto& kind) { return std::pair(kind.second.size(), std::get<1>(kind.first)); };
  const auto chosen =
      std::max_element(kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return MarkedSteps{std::get<0>(chosen->first), std::get<1>(chosen->first), chosen->second,
                     static_cast<std::uint32_t>(all.size())};
}

}  // namespace nimble::analyzer
