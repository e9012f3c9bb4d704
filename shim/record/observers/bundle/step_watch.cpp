#include "shim/record/observers/bundle/step_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nimble::shim {

namespace {

constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15u;
constexpr std::size_t kMostCandidates = 64;
constexpr std::uint32_t kRepeatsOfOtherMemory = 6;
constexpr double kSamePointers = 0.8;  // as the analyzer's step finder asks for
constexpr double kOfSignatures = 0.5, kOfOps = 0.8;

std::uint64_t power(std::uint32_t exponent) {
  std::uint64_t result = 1;
  for (std::uint64_t base = kBase; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

}  // namespace

void StepWatch::add(const Op& op, std::span<const Pointer> pointers) {
  if (full()) return;
  const std::uint32_t n = ops();
  const std::uint64_t signature = op.signature;
  signatures_.push_back(signature);
  launches_.push_back(launches_.back() + (op.launch ? 1 : 0));
  prefix_.push_back(prefix_.back() * kBase + signature);
  observed_.push_back(op.observed_before);
  pointers_.insert(pointers_.end(), pointers.begin(), pointers.end());
  first_pointer_.push_back(pointers_.size());
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (signatures_[n - run->first] == signature) {
      ++run++->second.length;
    } else {
      run = runs_.erase(run);
    }
  }
  look_for_periods();
  if (period_ != 0 && (!repeats(period_) || n >= begin_)) period_ = 0;
  for (auto& [period, run] : runs_) {
    if (period_ != 0) break;
    if (propose(period, run)) schedule(period, run);
  }
}

// Judges a period once per repeat, in time linear in its ops.
bool StepWatch::propose(std::uint32_t period, Run& run) const {
  const std::uint32_t repeats = run.length / period;
  if (repeats < 2 || repeats == run.judged || period <= settled_) return false;
  run.judged = repeats;
  if (launches_[ops()] == launches_[ops() - period]) return false;
  const bool same = same_memory(period);
  if (!same && repeats < kRepeatsOfOtherMemory - 1) return false;
  return settled_ == 0 || (same && !settled_same_memory_) || holds_much_else(period);
}

void StepWatch::look_for_periods() {
  const std::uint32_t n = ops() - 1;
  for (std::size_t i = 0; i < std::size(kWindows); ++i) {
    const std::uint32_t width = kWindows[i];
    if (n + 1 < width) break;
    const std::uint64_t hash = prefix_[n + 1] - prefix_[n + 1 - width] * power(width);
    const auto [seen, fresh] = last_[i].try_emplace(hash, n);
    if (fresh) continue;
    const std::uint32_t period = n - std::exchange(seen->second, n);
    if (runs_.size() < kMostCandidates && signatures_[n - period] == signatures_[n]) runs_.try_emplace(period, 1);
  }
}

// Whether the last repeat names the same memory as the one before, as far as that existed then.
bool StepWatch::same_memory(std::uint32_t period) const {
  std::uint64_t lived = 0, same = 0;
  looked_at_ += period;
  for (std::uint32_t i = ops() - period; i < ops(); ++i) {
    const std::uint64_t here = first_pointer_[i], there = first_pointer_[i - period];
    const std::uint64_t count = std::min(first_pointer_[i + 1] - here, first_pointer_[i + 1 - period] - there);
    for (std::uint64_t k = 0; k < count; ++k) {
      if (pointers_[here + k].birth > i - period) continue;
      ++lived;
      same += pointers_[here + k].word == pointers_[there + k].word;
    }
  }
  return static_cast<double>(same) >= kSamePointers * static_cast<double>(lived);
}

bool StepWatch::holds_much_else(std::uint32_t period) const {
  std::unordered_set<std::uint64_t> all;
  std::uint32_t known = 0;
  looked_at_ += period;
  for (std::uint32_t i = ops() - period; i < ops(); ++i) {
    all.insert(signatures_[i]);
    known += static_cast<std::uint32_t>(settled_signatures_.count(signatures_[i]));
  }
  std::size_t shared = 0;
  for (const std::uint64_t signature : all) shared += settled_signatures_.count(signature);
  return static_cast<double>(shared) < kOfSignatures * static_cast<double>(all.size()) || known < kOfOps * period;
}

// Chooses the op at which to begin: one after a point where the host observes; else where the first repeat began.
void StepWatch::schedule(std::uint32_t period, Run& run) {
  if (!run.first) {
    std::uint32_t first = ops() - run.length - period;
    for (; first > 0 && signatures_[first - 1] == signatures_[first - 1 + period]; --first) ++looked_at_;
    run.first = first;
  }
  std::uint32_t begin = *run.first;
  for (std::uint32_t i = begin + period; i < *run.first + 2 * period; ++i) {
    ++looked_at_;
    if (observed_[i] == 0) continue;
    begin = i;
    break;
  }
  if (begin < ops()) begin += (ops() - begin + period - 1) / period * period;
  period_ = period;
  begin_ = begin;
}

std::uint32_t StepWatch::begins_with(std::uint64_t signature) const {
  if (period_ == 0 || ops() != begin_ || full()) return 0;
  return signatures_[begin_ - period_] == signature ? period_ : 0;
}

void StepWatch::settle(std::uint32_t period) {
  settled_ = period;
  settled_same_memory_ = 2 * std::uint64_t{period} <= ops() && same_memory(period);
  settled_signatures_.clear();
  if (period <= ops())
    settled_signatures_.insert(signatures_.end() - static_cast<std::ptrdiff_t>(period), signatures_.end());
  period_ = 0;
}

}  // namespace nimble::shim
