#include "analyzer/step/step_variants.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "analyzer/base/rolling_hash.h"
#include "nimble/internal/schedule.h"

namespace nimble::analyzer {
namespace {

// A kind with less work than this is not worth a graph.
constexpr std::uint32_t kLeastOps = 2;
// What one of several kinds has to explain by itself, at the least.
constexpr LeastShares kLeastAmongOthers{0.05, 0.05};

class KindFinder {
 public:
  KindFinder(const Trace& trace, const ObjectTable& objects, const Step& step)
      : trace_(trace),
        objects_(objects),
        step_(step),
        hashes_(step.signatures),
        work_before_(step.ops.size() + 1, 0),
        covered_(step.ops.size(), false) {
    for (std::size_t i = 0; i < step.ops.size(); ++i)
      work_before_[i + 1] = work_before_[i] + (does_work(trace.calls[step.ops[i]].kind) ? 1 : 0);
    cover(step.period, step.begins);
    least_work_ = kLeastWorkOfKind * work(step.begins.front(), step.period) * static_cast<double>(step.begins.size());
    for (const auto& [begin, length] : gaps()) suggest_within(begin, length);
    const SequenceHints hints = hints_of(trace, objects, step.ops);
    suggest_between(hints.observed_before);
    suggest_between(lifeless(hints));
  }

  // The next best kind.
  std::optional<Repetition> next() {
    Words words = suggested_;
    for (const auto& [begin, length] : gaps()) {
      const std::uint32_t root = root_of(begin, length);
      add(words, begin, root, length / root);
    }
    // The best first, by how much they would explain.
    std::vector<std::pair<std::uint64_t, const Words::value_type*>> ranked;
    for (const auto& word : words) {
      const std::uint64_t each = work(word.second.begin, word.first.second);
      if (each >= kLeastOps) ranked.emplace_back(each * word.second.times, &word);
    }
    std::sort(ranked.begin(), ranked.end(), [](const auto& x, const auto& y) {
      return x.first != y.first ? x.first > y.first : x.second->second.begin < y.second->second.begin;
    });
    if (ranked.size() > kCandidates) ranked.resize(kCandidates);
    Repetition best;
    double most = 0;
    for (const auto& [estimate, word] : ranked) {
      Repetition repetition = all_of(word->second.begin, word->first.second);
      const double mine = static_cast<double>(repetition.begins.size()) * work(word->second.begin, word->first.second);
      if (repetition.begins.size() < kMinRepeats || mine < least_work_ || mine <= most) continue;
      most = mine;
      best = std::move(repetition);
    }
    if (best.period == 0) return std::nullopt;
    cover(best.period, best.begins);
    return best;
  }

 private:
  static constexpr std::size_t kCandidates = 32;  // that are searched for everywhere, for each kind
  struct Word {
    std::uint32_t begin = 0;  // of the first one
    std::uint64_t times = 0;
  };
  using Words = std::map<std::pair<std::uint64_t, std::uint32_t>, Word>;  // by hash and length

  void add(Words& words, std::uint32_t begin, std::uint32_t length, std::uint64_t times) const {
    auto [word, is_new] = words.try_emplace({hashes_.window(begin, length), length}, Word{begin, 0});
    word->second.times += times;
  }

  std::uint32_t work(std::uint32_t begin, std::uint32_t length) const {
    return work_before_[begin + length] - work_before_[begin];
  }

  void cover(std::uint32_t period, const std::vector<std::uint32_t>& begins) {
    for (const std::uint32_t begin : begins) std::fill_n(covered_.begin() + begin, period, true);
  }

  // Begin and length of what nothing covers yet.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gaps() const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> result;
    for (std::uint32_t i = 0; i < covered_.size(); ++i) {
      if (covered_[i]) continue;
      if (i == 0 || covered_[i - 1]) result.emplace_back(i, 0);
      ++result.back().second;
    }
    return result;
  }

  bool same(std::uint32_t a, std::uint32_t b, std::uint32_t length) const {
    return hashes_.window(a, length) == hashes_.window(b, length);
  }

  // The shortest word that the gap is a repetition of, if it is one.
  std::uint32_t root_of(std::uint32_t begin, std::uint32_t length) const {
    for (std::uint32_t root = 1; std::uint64_t{root} * root <= length; ++root)
      if (length % root == 0 && same(begin, begin + root, length - root)) return root;
    std::uint32_t shortest = length;
    for (std::uint32_t times = 2; std::uint64_t{times} * times <= length; ++times)
      if (length % times == 0 && same(begin, begin + length / times, length - length / times))
        shortest = length / times;
    return shortest;
  }

  // What repeats within a long gap, among other things.
  void suggest_within(std::uint32_t begin, std::uint32_t length) {
    if (length < kMinRepeats * kLeastOps || root_of(begin, length) != length) return;
    const auto found = find_repetition(std::span(step_.signatures).subspan(begin, length),
                                       hints_of(trace_, objects_, std::span(step_.ops).subspan(begin, length)));
    if (found) add(suggested_, begin + found->begins.front(), found->period, found->begins.size());
  }

  // Per op: whether no object that ops allocate and release lives across the boundary before it.
  std::vector<std::uint8_t> lifeless(const SequenceHints& hints) const {
    std::vector<std::int32_t> change(step_.ops.size() + 1, 0);
    for (const auto& [birth, death] : hints.lives) {
      ++change[birth + 1];
      --change[death + 1];
    }
    std::vector<std::uint8_t> result;
    std::int32_t live = 0;
    for (std::size_t op = 0; op < step_.ops.size(); ++op) result.push_back((live += change[op]) == 0 ? 1 : 0);
    return result;
  }

  // What is between two of these boundaries.
  void suggest_between(const std::vector<std::uint8_t>& boundary_before) {
    for (const auto& [begin, length] : gaps())
      for (std::uint32_t from = begin, to = from + 1; to <= begin + length; ++to) {
        if (to != begin + length && boundary_before[to] == 0) continue;
        add(suggested_, from, to - from, 1);
        from = to;
      }
  }

  // Everywhere in the gaps.
  Repetition all_of(std::uint32_t word, std::uint32_t length) const {
    Repetition result{length, {}};
    const std::uint64_t wanted = hashes_.window(word, length);
    for (const auto& [begin, gap] : gaps())
      for (std::uint32_t at = begin; at + length <= begin + gap;) {
        const bool fits = hashes_.window(at, length) == wanted &&
                          std::equal(step_.signatures.begin() + at, step_.signatures.begin() + at + length,
                                     step_.signatures.begin() + word);
        if (fits) result.begins.push_back(at);
        at += fits ? length : 1;
      }
    return result;
  }

  const Trace& trace_;
  const ObjectTable& objects_;
  const Step& step_;
  const RollingHash hashes_;
  std::vector<std::uint32_t> work_before_;
  std::vector<bool> covered_;
  double least_work_ = 0;
  Words suggested_;
};

// The other kinds. `step` is the first.
std::vector<Step> find_others(const Trace& trace, const ObjectTable& objects, const Step& step) {
  std::vector<Step> kinds;
  if (step.period == 0 || std::uint64_t{step.period} * step.begins.size() == step.ops.size()) return kinds;
  KindFinder finder(trace, objects, step);
  while (kinds.size() + 1 < kMaxKinds) {
    std::optional<Repetition> found = finder.next();
    if (!found) break;
    Step& kind = kinds.emplace_back();
    kind.ops = step.ops;
    kind.period = found->period;
    kind.begins = std::move(found->begins);
    choose_representative(kind, objects);
  }
  return kinds;
}

// Whether the kinds make up much of the trace, from where the first of them begins.
bool explain_enough(const Trace& trace, const std::vector<Step>& kinds) {
  std::uint64_t covered = 0, first = kNone, last = 0, all = 0;
  for (const Step& kind : kinds) {
    for (const std::uint32_t call : kind.calls()) covered += does_work(trace.calls[call].kind) ? kind.begins.size() : 0;
    first = std::min<std::uint64_t>(first, kind.begins.front());
    last = std::max<std::uint64_t>(last, kind.begins.back() + std::uint64_t{kind.period});
  }
  const std::vector<std::uint32_t>& ops = kinds.front().ops;
  for (std::uint64_t op = first; op < last; ++op) all += does_work(trace.calls[ops[op]].kind) ? 1 : 0;
  return static_cast<double>(covered) >= LeastShares{}.between * static_cast<double>(all);
}

}  // namespace

std::vector<Step> find_kinds(const Trace& trace, const ObjectTable& objects) {
  std::vector<Step> kinds{find_step(trace, objects)};
  const bool strict = kinds.front().period != 0;
  Step among = strict ? kinds.front() : find_step(trace, objects, kLeastAmongOthers);
  if (among.period == 0) return kinds;
  std::vector<Step> others = find_others(trace, objects, among);
  if (!strict) {
    std::vector<Step> together{among};
    together.insert(together.end(), others.begin(), others.end());
    return explain_enough(trace, together) ? together : kinds;
  }
  kinds.insert(kinds.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  return kinds;
}

}  // namespace nimble::analyzer
