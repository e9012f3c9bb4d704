// The order that the program itself gave to the ops of the step.
//
// Streams order their ops; the legacy default stream is ordered with every blocking and per-thread stream of its
// context; an event wait comes after the record; and what a host thread waited for comes before all that this thread
// submits later. Nothing else orders ops, in particular not the order in which two threads happened to call. One vector
// clock per op, shared by neighbours that have the same; a step on one stream needs none. A HappensBefore owns its
// clocks and is immutable once built. Ops are indices into the step. No errors: a step on more than kMaxStreams streams
// is not analysed (`too_many_streams`), and no two ops on different streams count as ordered.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class HappensBefore {
 public:
  static constexpr std::uint32_t kMaxStreams = 256;

  // `calls` are the step's ops as ascending indices into the trace; the calls between them are read too.
  HappensBefore(const Trace& trace, std::span<const std::uint32_t> calls);

  std::uint32_t streams() const { return static_cast<std::uint32_t>(ids_.size()); }
  bool too_many_streams() const { return too_many_streams_; }

  // The trace's id of stream `s`; the stream of an op, counted from 0 in the order of first use; the op's place there,
  // from 1.
  std::uint32_t stream_id(std::uint32_t s) const { return ids_[s]; }
  std::uint32_t stream(std::uint32_t op) const { return stream_[op]; }
  std::uint32_t position(std::uint32_t op) const { return position_[op]; }
  // The ops of stream `s`, in order.
  std::span<const std::uint32_t> ops_on(std::uint32_t s) const { return ops_[s]; }

  // How many ops of stream `s` come before `op`, including `op` itself.
  std::uint32_t clock(std::uint32_t op, std::uint32_t s) const {
    if (stream_[op] == s) return position_[op];
    return too_many_streams_ ? 0 : clocks_[std::size_t{clock_[op]} * ids_.size() + s];
  }

  // Whether a comes before b.
  bool ordered(std::uint32_t a, std::uint32_t b) const { return a != b && clock(b, stream_[a]) >= position_[a]; }

 private:
  struct Progress;

  void order_across_streams(const Trace& trace, std::span<const std::uint32_t> calls);

  std::vector<std::uint32_t> ids_, stream_, position_;
  std::vector<std::vector<std::uint32_t>> ops_;
  bool too_many_streams_ = false;
  std::vector<std::uint32_t> clock_;   // per op: which of `clocks_`
  std::vector<std::uint32_t> clocks_;  // one entry per stream each
};

}  // namespace nimble::analyzer
