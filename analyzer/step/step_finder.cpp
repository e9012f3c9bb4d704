#include "analyzer/step/step_finder.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analyzer/base/hash.h"
#include "analyzer/step/marked_steps.h"

namespace nimble::analyzer {

bool does_work(CallKind kind) {
  return kind != CallKind::event_record && kind != CallKind::event_wait && kind != CallKind::alloc_async &&
         kind != CallKind::free_async;
}

bool observes(const TraceCall& call) {
  switch (call.kind) {
    case CallKind::stream_synchronize:
    case CallKind::event_synchronize:
    case CallKind::context_synchronize:
    case CallKind::capture_begin:
    case CallKind::capture_end:
    case CallKind::context_end:
      return true;
    case CallKind::free:
      return call.result == 0;
    default:
      return is_op(call.kind) && call.synchronous;
  }
}

std::uint64_t op_signature(const Trace& trace, const ObjectTable& objects, std::uint32_t index) {
  const TraceCall& call = trace.calls[index];
  Hasher hash;
  hash.add(static_cast<std::uint64_t>(call.kind));
  hash.add(call.stream);
  hash.add(call.synchronous);
  auto memory_at = [&](std::uint32_t at) -> std::uint64_t {
    for (const PointerWord& pointer : objects.pointers(index))
      if (pointer.at == at) return static_cast<std::uint64_t>(objects.objects()[pointer.object].memory);
    return 0xff;
  };
  switch (call.kind) {
    case CallKind::launch:
      hash.add(trace.functions[call.function].name);
      for (int i = 0; i < 3; ++i) hash.add(std::uint64_t{call.grid[i]} << 32 | call.block[i]);
      hash.add(call.shared_bytes);
      hash.add(call.cooperative);
      for (std::uint32_t attribute : call.attributes) hash.add(attribute);
      break;
    case CallKind::copy:
      hash.add(memory_at(kAtSrc));
      hash.add(call.src.pitch);
      [[fallthrough]];
    case CallKind::set:
      hash.add(memory_at(kAtDst));
      hash.add(call.dst.pitch);
      hash.add(call.width);
      hash.add(call.height);
      hash.add(call.element);
      break;
    case CallKind::alloc_async:
      hash.add(call.size);
      hash.add(call.own_pool);
      break;
    default:
      break;
  }
  return hash.value();
}

namespace {

// The ops that ran: calls that failed did nothing, and those on a capturing stream only built a graph.
std::vector<std::uint32_t> ops_that_ran(const Trace& trace) {
  std::vector<std::uint32_t> ops;
  std::unordered_set<std::uint32_t> capturing;
  for (std::uint32_t i = 0; i < trace.calls.size(); ++i) {
    const TraceCall& call = trace.calls[i];
    if (call.kind == CallKind::capture_begin && call.result == 0) capturing.insert(call.stream);
    if (call.kind == CallKind::capture_end) capturing.erase(call.stream);
    if (is_op(call.kind) && call.result == 0 && !capturing.count(call.stream)) ops.push_back(i);
  }
  return ops;
}

std::vector<std::uint8_t> observed_before(const Trace& trace, std::span<const std::uint32_t> ops) {
  std::vector<std::uint8_t> result(ops.size(), 0);
  for (std::size_t i = 1; i < ops.size(); ++i)
    for (std::uint32_t call = ops[i - 1]; call < ops[i] && !result[i]; ++call) result[i] = observes(trace.calls[call]);
  return result;
}

// Signatures together with what the host observed, and with the addresses in objects that live for much of the trace.
std::vector<std::uint64_t> suggestions(const Trace& trace, const ObjectTable& objects,
                                       const std::vector<std::uint32_t>& ops,
                                       const std::vector<std::uint64_t>& signatures,
                                       const std::vector<std::uint8_t>& observed) {
  std::uint64_t calls = trace.calls.size();
  std::vector<std::uint64_t> result;
  result.reserve(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Hasher hash;
    hash.add(signatures[i]);
    hash.add(observed[i]);
    for (const PointerWord& pointer : objects.pointers(ops[i])) {
      const Object& object = objects.objects()[pointer.object];
      std::uint64_t end = object.death == kNone ? calls : object.death;
      if ((end - object.birth) * kMinRepeats < calls) continue;
      hash.add(std::uint64_t{pointer.object} << 32 | pointer.at);
      hash.add(pointer.offset);
    }
    result.push_back(hash.value());
  }
  return result;
}

std::uint64_t pattern_of(std::span<const std::uint32_t> calls, const ObjectTable& objects,
                         std::vector<std::uint64_t>& role, std::uint32_t occurrence) {
  // Per object: in the upper half the occurrence that gave it a role, in the lower half the role.
  Hasher hash;
  std::uint32_t roles = 0;
  for (std::uint32_t call : calls) {
    auto pointers = objects.pointers(call);
    hash.add(pointers.size());
    for (const PointerWord& pointer : pointers) {
      std::uint64_t& known = role[pointer.object];
      if (known >> 32 != occurrence + 1) known = std::uint64_t{occurrence + 1} << 32 | roles++;
      hash.add(std::uint64_t{pointer.at} << 32 | (known & 0xffffffffu));
    }
  }
  return hash.value();
}

}  // namespace

SequenceHints hints_of(const Trace& trace, const ObjectTable& objects, std::span<const std::uint32_t> ops) {
  SequenceHints hints;
  for (std::uint32_t call : ops) hints.work.push_back(does_work(trace.calls[call].kind));
  hints.observed_before = observed_before(trace, ops);
  std::unordered_map<std::uint32_t, std::uint32_t> births;  // by object
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const CallKind kind = trace.calls[ops[i]].kind;
    if (kind != CallKind::alloc_async && kind != CallKind::free_async) continue;
    const auto pointers = objects.pointers(ops[i]);
    if (pointers.empty()) continue;
    const std::uint32_t object = pointers.front().object;
    if (kind == CallKind::alloc_async) {
      births[object] = i;
    } else if (const auto birth = births.find(object); birth != births.end()) {
      hints.lives.push_back({birth->second, i});
    }
  }
  return hints;
}

void choose_representative(Step& step, const ObjectTable& objects, std::uint32_t fixed) {
  std::vector<std::uint64_t> role(objects.objects().size(), 0), pattern(step.begins.size());
  std::unordered_map<std::uint64_t, std::uint32_t> counts;
  for (std::uint32_t i = 0; i < step.begins.size(); ++i)
    ++counts[pattern[i] = pattern_of(step.calls_of(i), objects, role, i)];
  // Scanned from the end, so that among equals the latest wins; one that directly follows another is better still.
  std::uint32_t best = 0;
  std::tuple<std::uint32_t, bool, std::uint32_t> best_rank{0, false, 0};
  for (std::uint32_t i = 0; i < step.begins.size(); ++i) {
    bool follows = i > 0 && step.begins[i - 1] + step.period == step.begins[i];
    std::tuple rank{counts[pattern[i]], follows, i};
    if (rank >= best_rank) {
      best_rank = rank;
      best = i;
    }
  }
  if (fixed != kNone) best = fixed;
  step.representative = best;
  step.patterns = static_cast<std::uint32_t>(counts.size());
  step.same_pattern = counts[pattern[best]];
  for (std::uint64_t hash : pattern) step.shares_pattern.push_back(hash == pattern[best]);
}

Step find_step(const Trace& trace, const ObjectTable& objects, const LeastShares& least) {
  Step step;
  step.ops = ops_that_ran(trace);
  if (step.ops.empty()) {
    step.why_none = "the trace has no op: nothing was submitted to any stream";
    return step;
  }
  std::vector<std::uint64_t>& signatures = step.signatures;
  signatures.reserve(step.ops.size());
  for (std::uint32_t call : step.ops) signatures.push_back(op_signature(trace, objects, call));

  if (auto marked = find_marked_steps(trace, step.ops, signatures)) {
    step.marked = marked->marked;
    step.name = std::move(marked->name);
    step.period = marked->ops;
    step.begins = std::move(marked->begins);
    choose_representative(step, objects);
    return step;
  }

  SequenceHints hints = hints_of(trace, objects, step.ops);
  hints.suggestions = suggestions(trace, objects, step.ops, signatures, hints.observed_before);
  hints.same_pointers = [&](std::uint32_t first, std::uint32_t count, std::uint32_t period) {
    std::uint64_t lived = 0, same = 0;
    for (std::uint32_t i = first; i < first + count; ++i) {
      auto here = objects.pointers(step.ops[i]), there = objects.pointers(step.ops[i + period]);
      for (std::size_t k = 0; k < std::min(here.size(), there.size()); ++k) {
        if (objects.objects()[here[k].object].death <= step.ops[i + period]) continue;
        ++lived;
        same += here[k].object == there[k].object && here[k].offset == there[k].offset;
      }
    }
    return lived == 0 ? 1.0 : static_cast<double>(same) / static_cast<double>(lived);
  };
  std::optional<Repetition> found = find_repetition(signatures, hints, least);
  if (!found) {
    step.why_none = "no sequence of ops that makes up much of the trace repeats at least " +
                    std::to_string(kMinRepeats) + " times in a row among " + std::to_string(step.ops.size()) +
                    " ops; record more steps";
    return step;
  }
  step.period = found->period;
  step.begins = std::move(found->begins);
  choose_representative(step, objects);
  return step;
}

Step step_at(const Trace& trace, const ObjectTable& objects, const StepPlace& place) {
  Step step;
  step.ops = ops_that_ran(trace);
  std::uint32_t first = 0;
  while (first < step.ops.size() && trace.calls[step.ops[first]].seq != place.first_seq) ++first;
  std::uint32_t end = first;
  while (end < step.ops.size() && trace.calls[step.ops[end]].seq != place.last_seq) ++end;
  if (end == step.ops.size() || (place.ops != 0 && end - first + 1 != place.ops)) {
    step.why_none = "the trace does not hold a step" +
                    (place.ops != 0 ? " of " + std::to_string(place.ops) + " ops" : std::string()) +
                    " that begins with an op of seq " + std::to_string(place.first_seq) + " and ends with one of seq " +
                    std::to_string(place.last_seq);
    return step;
  }
  std::vector<std::uint64_t> signatures;
  signatures.reserve(step.ops.size());
  for (std::uint32_t call : step.ops) signatures.push_back(op_signature(trace, objects, call));
  step.period = end - first + 1;
  step.begins = occurrences(signatures, first, step.period);
  const auto named = std::lower_bound(step.begins.begin(), step.begins.end(), first);
  choose_representative(step, objects, static_cast<std::uint32_t>(named - step.begins.begin()));
  return step;
}

}  // namespace nimble::analyzer
