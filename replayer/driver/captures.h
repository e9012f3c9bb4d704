// The program's streams in which a capture has begun and not ended. While there is one, we must not make calls that
// interfere.
//
// A capture counts from before the driver call that begins it, so that no other thread's call makes us do what a
// capture forbids. Allocates only when a capture begins. Not synchronised: its owner's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <set>

#include "nimble/internal/call.h"

namespace nimble {

class Captures {
 public:
  bool any() const { return !streams_.empty(); }
  void begin(const StreamRef& stream) { streams_.insert(stream.key); }
  // The capture has ended, or was refused, or the stream ends.
  void forget(const StreamRef& stream) {
    if (const auto found = streams_.find(stream.key); found != streams_.end()) streams_.erase(found);
  }

  // Whether the op goes into a graph that the program is capturing: then it does nothing now. `ask` is the driver's
  // function.
  bool takes(const Call& call, decltype(&::cuStreamIsCapturing) ask) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return any() && call.has_stream && ask(call.stream.handle, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

 private:
  std::multiset<std::uint64_t> streams_;  // their keys, once for each capture begun there
};

}  // namespace nimble
