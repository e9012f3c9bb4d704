#include "analyzer/step_finder.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analyzer/hash.h"
#include "analyzer/marked_steps.h"
#include "analyzer/rolling_hash.h"

namespace nimble::analyzer {
namespace {

// How many candidate periods are checked op by op, and what share of the best coverage, of the recurring signatures and
// of the long-lived pointers the chosen one must reach. Of those that do, the shortest wins: a copy of the loss in
// every tenth step does not make the step ten times as long, but the equal layers of a network are no steps.
constexpr std::size_t kCandidates = 64;
constexpr double kMinCoverage = 0.8;
constexpr double kMinSignatures = 0.5;
constexpr double kMinSamePointers = 0.8;
constexpr std::uint32_t kSampledOps = 4096;  // per run, for the share of pointers

// The nearest earlier position with an equal key, for positions handed over in order.
class LastSeen {
 public:
  explicit LastSeen(std::size_t count) {
    std::size_t capacity = 16;
    while (capacity < 2 * count) capacity *= 2;
    slots_.resize(capacity);
  }
  void clear() { std::fill(slots_.begin(), slots_.end(), Slot{}); }
  std::uint32_t exchange(std::uint64_t key, std::uint32_t position) {
    std::size_t mask = slots_.size() - 1;
    for (std::size_t i = key & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.position == kNone) {
        slot = {key, position};
        return kNone;
      }
      if (slot.key == key) return std::exchange(slot.position, position);
    }
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t position = kNone;
  };
  std::vector<Slot> slots_;
};

// The distances at which windows recur, the most frequent first.
std::vector<std::uint32_t> candidate_periods(std::span<const std::uint64_t> signatures) {
  std::size_t n = signatures.size();
  std::vector<std::uint32_t> votes(n / kMinRepeats + 1, 0);
  std::vector<std::uint64_t> window(signatures.begin(), signatures.end());
  for (std::uint64_t& hash : window) hash = mix(hash);
  LastSeen last(n);
  for (std::size_t width = 1; width < 2 * votes.size(); width *= 2) {
    if (width > 1) {
      std::size_t half = width / 2;
      for (std::size_t i = 0; i + width <= n; ++i) window[i] = mix(window[i] * 3 + window[i + half]);
      last.clear();
    }
    for (std::size_t i = 0; i + width <= n; ++i) {
      std::uint32_t previous = last.exchange(window[i], static_cast<std::uint32_t>(i));
      if (previous == kNone) continue;
      std::size_t distance = i - previous;
      if (distance < votes.size() && distance <= 2 * width && width <= 2 * distance) ++votes[distance];
    }
  }
  std::vector<std::uint32_t> candidates;
  for (std::uint32_t distance = 1; distance < votes.size(); ++distance)
    if (votes[distance] > 0) candidates.push_back(distance);
  std::sort(candidates.begin(), candidates.end(),
            [&](std::uint32_t a, std::uint32_t b) { return votes[a] != votes[b] ? votes[a] > votes[b] : a < b; });
  if (candidates.size() > kCandidates) candidates.resize(kCandidates);
  return candidates;
}

struct Run {
  std::uint32_t begin = 0, length = 0;
};

struct Candidate {
  std::uint32_t period = 0;
  std::uint64_t covered = 0;  // work in runs
  std::vector<Run> runs;      // at least kMinRepeats periods each
};

// How much work stands before each op, and in all.
class Work {
 public:
  Work(std::size_t ops, const std::vector<std::uint8_t>& work) : before_(ops + 1, 0) {
    for (std::size_t i = 0; i < ops; ++i) before_[i + 1] = before_[i] + (work.empty() ? 1 : work[i]);
  }
  std::uint32_t between(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }
  std::uint32_t all() const { return before_.back(); }

 private:
  std::vector<std::uint32_t> before_;
};

Candidate runs_of(std::span<const std::uint64_t> signatures, const Work& work, std::uint32_t period) {
  Candidate result{period, 0, {}};
  std::uint32_t n = static_cast<std::uint32_t>(signatures.size()), covered_to = 0;
  for (std::uint32_t i = 0; i + period < n;) {
    if (signatures[i] != signatures[i + period]) {
      ++i;
      continue;
    }
    std::uint32_t begin = i;
    while (i + period < n && signatures[i] == signatures[i + period]) ++i;
    std::uint32_t length = i - begin + period;
    if (length / period < kMinRepeats) continue;
    result.runs.push_back({begin, length});
    result.covered += work.between(std::max(begin, covered_to), begin + length);
    covered_to = begin + length;
  }
  return result;
}

bool explains_enough(const Candidate& candidate, const Work& work, const LeastShares& least) {
  if (candidate.runs.empty()) return false;
  const Run& last = candidate.runs.back();
  auto covered = static_cast<double>(candidate.covered);
  return candidate.covered > 0 && covered >= least.of_all * work.all() &&
         covered >= least.between * work.between(candidate.runs.front().begin, last.begin + last.length);
}

double share_of_signatures(std::span<const std::uint64_t> signatures, const Candidate& candidate,
                           const std::unordered_set<std::uint64_t>& recurring) {
  std::unordered_set<std::uint64_t> inside;
  for (const Run& run : candidate.runs)
    for (std::uint32_t i = 0; i < candidate.period; ++i)
      if (recurring.count(signatures[run.begin + i])) inside.insert(signatures[run.begin + i]);
  return recurring.empty() ? 1.0 : static_cast<double>(inside.size()) / static_cast<double>(recurring.size());
}

double share_of_pointers(const Candidate& candidate, const SequenceHints& hints) {
  if (!hints.same_pointers) return 1.0;
  double worst = 1.0;
  for (const Run& run : candidate.runs) {
    // From the middle: the first steps of a run still allocate what later ones reuse.
    std::uint32_t count = std::min({run.length - candidate.period, candidate.period, kSampledOps});
    std::uint32_t begin = run.begin + (run.length - candidate.period - count) / 2;
    worst = std::min(worst, hints.same_pointers(begin, count, candidate.period));
  }
  return worst;
}

std::optional<Candidate> choose(std::span<const std::uint64_t> signatures, const SequenceHints& hints,
                                const LeastShares& least) {
  Work work(signatures.size(), hints.work);
  std::vector<Candidate> found;
  std::vector<std::uint32_t> periods = candidate_periods(signatures);
  if (!hints.suggestions.empty()) {
    std::vector<std::uint32_t> more = candidate_periods(hints.suggestions);
    periods.insert(periods.end(), more.begin(), more.end());
    std::sort(periods.begin(), periods.end());
    periods.erase(std::unique(periods.begin(), periods.end()), periods.end());
  }
  for (std::uint32_t period : periods) {
    Candidate candidate = runs_of(signatures, work, period);
    if (explains_enough(candidate, work, least)) found.push_back(std::move(candidate));
  }
  if (found.empty()) return std::nullopt;
  std::unordered_map<std::uint64_t, std::uint32_t> counts;
  for (std::uint64_t signature : signatures) ++counts[signature];
  std::unordered_set<std::uint64_t> recurring;
  for (const auto& [signature, count] : counts)
    if (count >= kMinRepeats) recurring.insert(signature);

  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.period < b.period; });
  std::uint64_t best = 0;
  for (const Candidate& candidate : found) best = std::max(best, candidate.covered);
  for (Candidate& candidate : found)
    if (static_cast<double>(candidate.covered) >= kMinCoverage * static_cast<double>(best) &&
        share_of_signatures(signatures, candidate, recurring) >= kMinSignatures &&
        share_of_pointers(candidate, hints) >= kMinSamePointers)
      return std::move(candidate);
  for (Candidate& candidate : found)
    if (candidate.covered == best) return std::move(candidate);
  return std::nullopt;
}

// Per rotation of the run's period: how many objects that live for less than a period live across its boundaries, on
// average.
std::vector<std::uint32_t> crossing_lives(std::uint32_t period, const Run& run, const SequenceHints& hints) {
  std::vector<std::int64_t> change(period + 1, 0);
  for (const auto& [birth, death] : hints.lives) {
    if (birth < run.begin || death >= run.begin + run.length || death - birth >= period) continue;
    // Boundaries before the ops behind the birth, up to the death.
    const std::uint32_t from = (birth + 1 - run.begin) % period, to = (death + 1 - run.begin) % period;
    ++change[from];
    --change[to];
    if (to < from) ++change[0];
  }
  std::vector<std::uint32_t> result;
  std::int64_t live = 0;
  for (std::uint32_t r = 0; r < period; ++r)
    result.push_back(static_cast<std::uint32_t>((live += change[r]) / (run.length / period)));
  return result;
}

// How far into its longest run the step should begin, in [0, period).
std::uint32_t choose_rotation(const Candidate& candidate, const RollingHash& hashes, const SequenceHints& hints,
                              const Run& reference) {
  std::uint32_t period = candidate.period;
  std::unordered_map<std::uint64_t, std::uint32_t> rotation_of;
  for (std::uint32_t r = 0; r < period; ++r) rotation_of.emplace(hashes.window(reference.begin + r, period), r);

  std::vector<std::uint32_t> interruptions(period, 0), observed(period, 0);
  std::uint32_t first = kNone, last_end = kNone;
  for (const Run& run : candidate.runs) {
    auto found = rotation_of.find(hashes.window(run.begin, period));
    if (found == rotation_of.end()) continue;  // a run of other ops with the same period
    std::uint32_t rotation = found->second;
    if (first == kNone) first = rotation;
    if (last_end != kNone) {
      ++interruptions[last_end];
      ++interruptions[rotation];
    }
    last_end = (rotation + run.length) % period;
    ++observed[rotation];  // where a run begins is as good a boundary as one that the host looks at
    if (!hints.observed_before.empty())
      for (std::uint32_t i = 1; i < run.length; ++i)
        if (hints.observed_before[run.begin + i]) ++observed[(rotation + i) % period];
  }
  const std::vector<std::uint32_t> crossing = crossing_lives(period, reference, hints);
  const auto rank = [&](std::uint32_t r) { return std::tuple(~crossing[r], interruptions[r], observed[r]); };
  std::uint32_t best = first;
  for (std::uint32_t k = 1; k < period; ++k)
    if (const std::uint32_t r = (first + k) % period; rank(r) > rank(best)) best = r;
  return best;
}

// All occurrences of the ops [word, word + period), without overlap: from there to both sides, so that its alignment
// holds; an op that does not fit moves on by one.
std::vector<std::uint32_t> occurrences(std::span<const std::uint64_t> signatures, const RollingHash& hashes,
                                       std::uint32_t word, std::uint32_t period) {
  std::vector<std::uint32_t> begins;
  std::uint64_t wanted = hashes.window(word, period);
  auto fits = [&](std::size_t at) {
    return hashes.window(at, period) == wanted &&
           std::equal(signatures.begin() + at, signatures.begin() + at + period, signatures.begin() + word);
  };
  for (std::size_t end = word; end >= period;) {
    bool fit = fits(end - period);
    if (fit) begins.push_back(static_cast<std::uint32_t>(end - period));
    end -= fit ? period : 1;
  }
  std::reverse(begins.begin(), begins.end());
  for (std::size_t at = word; at + period <= signatures.size();) {
    bool fit = fits(at);
    if (fit) begins.push_back(static_cast<std::uint32_t>(at));
    at += fit ? period : 1;
  }
  return begins;
}

}  // namespace

std::optional<Repetition> find_repetition(std::span<const std::uint64_t> signatures, const SequenceHints& hints,
                                          const LeastShares& least) {
  if (signatures.size() < kMinRepeats) return std::nullopt;
  std::optional<Candidate> candidate = choose(signatures, hints, least);
  if (!candidate) return std::nullopt;
  std::uint32_t period = candidate->period;
  RollingHash hashes(signatures);
  Run reference = *std::max_element(candidate->runs.begin(), candidate->runs.end(),
                                    [](const Run& a, const Run& b) { return a.length < b.length; });
  std::uint32_t word = reference.begin + choose_rotation(*candidate, hashes, hints, reference);

  return Repetition{period, occurrences(signatures, hashes, word, period)};
}

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

// The ops that ran: calls that failed did nothing, and those on a stream that captures only built a graph.
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

// Signatures with what the host observed, and with the addresses in objects that live for much of the trace.
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
  // role[object] holds the occurrence that gave it in the upper half, and the role in the lower.
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
  // Scanned from the end, so that among equals the latest wins; one that follows another at once is better still.
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
    step.why_none = "the trace holds no op: nothing was put on any stream";
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
  step.begins = occurrences(signatures, RollingHash(signatures), first, step.period);
  const auto named = std::lower_bound(step.begins.begin(), step.begins.end(), first);
  choose_representative(step, objects, static_cast<std::uint32_t>(named - step.begins.begin()));
  return step;
}

}  // namespace nimble::analyzer
