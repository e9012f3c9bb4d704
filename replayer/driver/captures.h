// The streams of the program's in which a capture began and has not ended. While there is one, nothing of ours may come
// in between.
//
// Counts from before the driver has the call that begins a capture, so that no other thread's call makes us do what a
// capture forbids. Allocates where a capture begins, nowhere else. Not synchronised: its owner's lock guards it.
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
  // It has ended, or has not come about, or the stream ends.
  void forget(const StreamRef& stream) {
    if (const auto found = streams_.find(stream.key); found != streams_.end()) streams_.erase(found);
  }

  // Whether the op goes into a graph that the program is capturing: then it does nothing now. `ask` is the driver's.
  bool takes(const Call& call, decltype(&::cuStreamIsCapturing) ask) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return any() && call.has_stream && ask(call.stream.handle, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

 private:
  std::multiset<std::uint64_t> streams_;  // their keys; as often as a capture has begun there
};

}  // namespace nimble
