// What memory a call's op may touch, as far as the call tells: for ops that no analysis has seen.
//
// A copy and a set touch what they name. A kernel is taken to read and write what its parameters lead to, whatever they
// are declared to be, but not what pointers in that memory lead to, as an analysis takes it of kernels of which no more
// is known; and variables of its module unless it is known to use none. Anything else may touch anything; but
// a host function reaches what the host reaches, which is watched anyway. Values; no errors.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble {

class WatchedMemory;

struct MemoryRange {
  std::uint64_t begin = 0, end = 0;
  bool written = false;  // else it is read only

  bool operator==(const MemoryRange&) const = default;
};

// What is touched, by whomever.
struct MemoryView {
  std::span<const MemoryRange> ranges;
  bool variables = false;  // and what is reached by these
  bool anything = false;

  bool none() const { return ranges.empty() && !variables && !anything; }
};

struct Touched {
  static constexpr std::uint32_t kMost = 32;

  std::array<MemoryRange, kMost> list;
  std::uint32_t count = 0;
  bool variables = false;  // and what it reaches by these
  bool anything = false;

  std::span<const MemoryRange> ranges() const { return {list.data(), count}; }
  MemoryView view() const { return {ranges(), variables, anything}; }
  bool none() const { return count == 0 && !variables && !anything; }
  void add(const MemoryRange& range);
};

// Whether an op of the kind may touch memory of the device's that others know of.
inline constexpr bool touches_memory(CallKind kind) {
  return kind == CallKind::launch || kind == CallKind::copy || kind == CallKind::set ||
         kind == CallKind::graph_launch || kind == CallKind::opaque;
}

Touched touched_by(const Call& call, CallContext& context);
// Whether it may touch any memory that is watched. Any thread.
bool touches(const Call& call, CallContext& context, const WatchedMemory& watched);

// Whether two such ranges have a byte in common that one of the two writes.
inline bool conflict(const MemoryRange& one, const MemoryRange& other) {
  return one.begin < other.end && other.begin < one.end && (one.written || other.written);
}
// By address, and without overlap.
void sort_and_merge(std::vector<MemoryRange>& ranges);
// The same of such ranges; and of all that is touched, where the ranges of the second are such.
bool conflict(const MemoryRange& one, std::span<const MemoryRange> sorted);
bool conflict(const MemoryView& one, const MemoryView& sorted);

}  // namespace nimble
