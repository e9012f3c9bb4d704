// The order that the program gave to the ops of its step, found again for the checker from the trace alone.
//
// For every stream, each op knows the last op there that comes before it. Op numbers are indices into the step. Time
// and memory are ops times streams; on one stream there is nothing to find out. Immutable once built. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/step/step_finder.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class ProgramOrder {
 public:
  // What counts besides the streams themselves: events alone, as when replay submits call by call; or also what the
  // host waited for, and how default streams are ordered with others.
  enum class By : std::uint8_t { events, everything };

  // `calls` are the step's ops, as ascending indices into the trace.
  ProgramOrder(const Trace& trace, std::span<const std::uint32_t> calls, By by);

  std::uint32_t streams() const { return streams_; }
  std::uint32_t stream(std::uint32_t op) const { return stream_[op]; }
  // One more than the last op on the stream that is this one or comes before it; 0 if there is none.
  std::uint32_t seen(std::uint32_t op, std::uint32_t stream) const {
    return streams_ == 1 ? op + 1 : seen_[std::size_t{op} * streams_ + stream];
  }
  bool ordered(std::uint32_t first, std::uint32_t second) const {
    return first != second && seen(second, stream_[first]) > first;
  }

 private:
  std::uint32_t streams_ = 0;
  std::vector<std::uint32_t> stream_, seen_;
};

// What an event wait of the step waits for: which of its ops has recorded the event, in this step or in an earlier one.
struct OwnRecord {
  bool by_step = false;
  std::uint32_t op = kNone;  // kNone: in an earlier step
};

OwnRecord own_record(const Trace& trace, const Step& step, std::uint32_t op);

}  // namespace nimble::analyzer
