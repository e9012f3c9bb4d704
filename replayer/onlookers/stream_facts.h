// What the driver tells of a stream, for StreamClocks: its kind, its context, and whether it captures.
//
// Any thread; asks the driver, so under no lock that a driver call may wait for. No errors: what the driver does not
// tell is unknown.
#pragma once

#include <cstdint>

#include "nimble/internal/call.h"
#include "replayer/onlookers/stream_clocks.h"

namespace nimble {

class StreamFacts {
 public:
  // `context` must outlive it.
  explicit StreamFacts(CallContext& context) : context_(context) {}

  StreamClocks::Stream describe(const StreamRef& stream) const {
    return {stream, context_.stream_kind(stream), context_of(stream)};
  }
  // The number of a context, by which StreamClocks tells contexts apart; and of the one that a call is about.
  static std::uint64_t number_of(CUcontext context) {
    return reinterpret_cast<std::uint64_t>(context) & ~std::uint64_t{3};
  }
  std::uint64_t context_of(const Call& call) const;
  bool is_capturing(const StreamRef& stream) const;

 private:
  std::uint64_t context_of(const StreamRef& stream) const;

  CallContext& context_;
};

}  // namespace nimble
