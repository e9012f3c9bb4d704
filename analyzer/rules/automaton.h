// Matches texts in time linear in their length, without recursion and in bounded memory: a program of a few kinds of
// instructions, run as a finite automaton whose states are made when texts first reach them.
//
// An Automaton owns its states and makes them under its own lock: threads may share it.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

using ByteSet = std::bitset<256>;

// What a text is compared with, step by step; the text has to end where the program does. Jumps are relative, so that a
// part of a program may be copied.
struct MatchStep {
  enum class Kind : std::uint8_t { byte, jump, split, begin, end, edge, inside };
  Kind kind = Kind::byte;
  std::int32_t to = 0;     // jump and split: how far; byte: which of the sets it has to be in
  std::int32_t other = 0;  // split: or so far
  // begin, end: of the text. edge: between a word's character and another; inside: not there.
};

class Automaton {
 public:
  Automaton(std::vector<MatchStep> program, std::vector<ByteSet> sets);

  // Whether the program matches all of the text.
  bool matches(std::string_view text);

 private:
  enum Before : std::uint32_t { kBegin, kWord, kOther };  // the kind of the byte before
  // The kind of byte before, and the steps that may come next, in order.
  using Key = std::vector<std::uint32_t>;
  struct State {
    const Key* key = nullptr;
    std::vector<std::uint32_t> next;  // by class of the next byte, and for the end; kUnknown if it is not known
  };

  void find_classes();
  std::uint32_t state_of(Key key);
  // The next state; for the end, whether it matches.
  std::uint32_t follow(std::uint32_t state, std::uint32_t byte_class);
  bool holds(MatchStep::Kind place, std::uint32_t before, std::uint32_t byte_class) const;

  const std::vector<MatchStep> program_;
  const std::vector<ByteSet> sets_;
  bool looks_back_ = false;                // whether any step depends on the byte before
  std::array<std::uint8_t, 256> class_{};  // per byte: no set tells bytes of one class apart
  std::vector<std::uint8_t> of_class_;     // one byte of each
  std::mutex mutex_;                       // guards all below
  std::map<Key, std::uint32_t> known_;
  std::vector<State> states_;
  std::size_t memory_ = 0;                  // of the states
  std::uint64_t forgotten_ = 0;             // how often all states were
  std::vector<std::uint32_t> seen_, open_;  // of the state that is being followed
  std::uint32_t round_ = 0;
};

}  // namespace nimble::analyzer
