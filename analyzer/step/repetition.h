// Finds the repetition in a sequence of signatures.
//
// It is the shortest period that repeats at least three times in a row and explains the sequence. The search is by
// hashed windows of doubling length (the ranks of prefix doubling, as for suffix arrays, Manber and Myers 1993): in a
// run of period P, every window of P to 2P ops recurs at a distance of exactly P, so distances between recurrences of
// equal windows vote for periods, in O(n log n). The best few candidates are then checked op by op.
//
// Extras between repeats, a prologue and an epilogue are no obstacle, but a period must explain a quarter of the work,
// and half of the work from its first run to its last. Pure; any thread. No errors.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace nimble::analyzer {

inline constexpr std::uint32_t kMinRepeats = 3;

// What is known about a sequence of ops besides their signatures.
struct SequenceHints {
  // Per op: 1 if it does work, 0 if it only manages memory or events. What a period explains is counted in work. May be
  // empty: all ops do work.
  std::vector<std::uint8_t> work;
  // Per op: whether there is a call between it and the previous op through which the host could notice progress. May be
  // empty.
  std::vector<std::uint8_t> observed_before;
  // Per op: its signature together with what may differ from one repeat to the next, such as addresses. Repeats in this
  // sequence suggest periods that the signatures alone would hide, as in a step of equal layers. May be empty.
  std::vector<std::uint64_t> suggestions;
  // Among pointers of ops in [first, first + count) to objects that live on to the op `period` later, the share that is
  // the same there. Tells the layers of a network from the steps of a program. May be empty: taken as 1.
  std::function<double(std::uint32_t first, std::uint32_t count, std::uint32_t period)> same_pointers;
  // For objects that ops of the sequence allocate and release: these two ops. May be empty.
  std::vector<std::array<std::uint32_t, 2>> lives;
};

struct Repetition {
  std::uint32_t period = 0;
  std::vector<std::uint32_t> begins;  // where each occurrence begins; ascending, without overlap
};

// What it must explain of all the work, and of the work from its first run to its last.
struct LeastShares {
  double of_all = 0.25, between = 0.5;
};

// The repetition in a sequence of signatures, rotated so that the fewest objects live across its boundaries; else to
// where the sequence is most often interrupted; else to just after a call that observes; else as early as possible.
std::optional<Repetition> find_repetition(std::span<const std::uint64_t> signatures, const SequenceHints& hints,
                                          const LeastShares& least = {});

// All occurrences of the ops [word, word + period), without overlap: from there in both directions, so that its
// alignment holds; the search moves on by one where an op does not fit.
std::vector<std::uint32_t> occurrences(std::span<const std::uint64_t> signatures, std::uint32_t word,
                                       std::uint32_t period);

}  // namespace nimble::analyzer
