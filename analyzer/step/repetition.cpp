#include "analyzer/step/repetition.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analyzer/base/hash.h"
#include "analyzer/base/rolling_hash.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {
namespace {

// How many candidate periods are checked op by op, and what share of the best coverage, of the recurring signatures and
// of the long-lived pointers the chosen one must reach. Of those that do, the shortest wins: a copy of the loss in
// every tenth step does not make the step ten times as long, but the equal layers of a network are not steps.
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

// How much work is before each op, and in all.
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
    // Boundaries from just after the birth up to the death.
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
    ++observed[rotation];  // the start of a run is as good a boundary as one that the host looks at
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

}  // namespace

std::vector<std::uint32_t> occurrences(std::span<const std::uint64_t> signatures, std::uint32_t word,
                                       std::uint32_t period) {
  const RollingHash hashes(signatures);
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

  return Repetition{period, occurrences(signatures, word, period)};
}

}  // namespace nimble::analyzer
