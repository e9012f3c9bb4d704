#include "analyzer/rules/automaton.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

namespace nimble::analyzer {
namespace {

constexpr std::size_t kMemory = std::size_t{1} << 20;  // for all states: beyond that, they are made anew
constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max(), kNowhere = kUnknown - 1;

bool is_word(unsigned char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

}  // namespace

Automaton::Automaton(std::vector<MatchStep> program, std::vector<ByteSet> sets)
    : program_(std::move(program)), sets_(std::move(sets)), seen_(program_.size() + 1) {
  using Kind = MatchStep::Kind;
  for (const MatchStep& step : program_)
    looks_back_ |= step.kind == Kind::begin || step.kind == Kind::edge || step.kind == Kind::inside;
  find_classes();
}

// Each set halves the classes that it tells apart.
void Automaton::find_classes() {
  std::array<std::uint32_t, 256> classes{};
  std::uint32_t count = 1;
  const auto part = [&](const auto& is_in) {
    std::unordered_map<std::uint32_t, std::uint32_t> inside;
    std::array<std::uint32_t, 256> size{}, size_in{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      ++size[classes[byte]];
      size_in[classes[byte]] += is_in(byte) ? 1 : 0;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::uint32_t old = classes[byte];
      if (!is_in(byte) || size_in[old] == size[old]) continue;
      const auto [found, is_new] = inside.try_emplace(old, count);
      if (is_new) ++count;
      classes[byte] = found->second;
    }
  };
  if (looks_back_) part([](unsigned byte) { return is_word(static_cast<unsigned char>(byte)); });
  for (const ByteSet& set : sets_)
    if (count < 256) part([&](unsigned byte) { return set[byte]; });
  of_class_.resize(count);
  for (unsigned byte = 0; byte < 256; ++byte) {
    class_[byte] = static_cast<std::uint8_t>(classes[byte]);
    of_class_[classes[byte]] = static_cast<std::uint8_t>(byte);
  }
}

bool Automaton::matches(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto end = static_cast<std::uint32_t>(of_class_.size());
  std::uint32_t state = state_of({kBegin, 0});
  for (const char c : text) {
    state = follow(state, class_[static_cast<unsigned char>(c)]);
    if (state == kNowhere) return false;
  }
  return follow(state, end) != kNowhere;
}

std::uint32_t Automaton::state_of(Key key) {
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (memory_ > kMemory) {
    known_.clear();
    states_.clear();
    memory_ = 0;
    ++forgotten_;
  }
  const auto number = static_cast<std::uint32_t>(states_.size());
  memory_ += 128 + 4 * (key.size() + of_class_.size());
  const auto place = known_.emplace(std::move(key), number).first;
  states_.push_back({&place->first, std::vector<std::uint32_t>(of_class_.size() + 1, kUnknown)});
  return number;
}

bool Automaton::holds(MatchStep::Kind place, std::uint32_t before, std::uint32_t byte_class) const {
  const bool at_end = byte_class == of_class_.size();
  if (place == MatchStep::Kind::begin) return before == kBegin;
  if (place == MatchStep::Kind::end) return at_end;
  const bool is_edge = (before == kWord) != (!at_end && is_word(of_class_[byte_class]));
  return is_edge == (place == MatchStep::Kind::edge);
}

std::uint32_t Automaton::follow(std::uint32_t state, std::uint32_t byte_class) {
  if (const std::uint32_t known = states_[state].next[byte_class]; known != kUnknown) return known;
  const bool at_end = byte_class == of_class_.size();
  const std::uint32_t before = states_[state].key->front();
  Key key{kOther};
  if (looks_back_ && !at_end && is_word(of_class_[byte_class])) key.front() = kWord;
  bool matched = false;
  // The counter never wraps in a process's life; after a wrap a step could seem to have been seen.
  if (++round_ == 0) std::fill(seen_.begin(), seen_.end(), 0), round_ = 1;
  open_.assign(states_[state].key->begin() + 1, states_[state].key->end());
  const auto visit = [&](std::uint32_t at) {
    if (std::exchange(seen_[at], round_) != round_) open_.push_back(at);
  };
  while (!open_.empty()) {
    const std::uint32_t at = open_.back();
    open_.pop_back();
    if (at == program_.size()) {
      matched = true;
      continue;
    }
    const MatchStep& step = program_[at];
    const auto far = [&](std::int32_t by) { return static_cast<std::uint32_t>(static_cast<std::int32_t>(at) + by); };
    switch (step.kind) {
      case MatchStep::Kind::byte:
        if (!at_end && sets_[static_cast<std::size_t>(step.to)][of_class_[byte_class]]) key.push_back(at + 1);
        break;
      case MatchStep::Kind::split:
        visit(far(step.other));
        [[fallthrough]];
      case MatchStep::Kind::jump:
        visit(far(step.to));
        break;
      default:
        if (holds(step.kind, before, byte_class)) visit(at + 1);
    }
  }
  if (at_end) return states_[state].next[byte_class] = matched ? 0 : kNowhere;
  if (key.size() == 1) return states_[state].next[byte_class] = kNowhere;
  std::sort(key.begin() + 1, key.end());
  key.erase(std::unique(key.begin() + 1, key.end()), key.end());
  const std::uint64_t forgotten = forgotten_;
  const std::uint32_t next = state_of(std::move(key));
  // If all states were forgotten, this one was, too.
  if (forgotten == forgotten_) states_[state].next[byte_class] = next;
  return next;
}

}  // namespace nimble::analyzer
