// The arena once replay has stood aside: the program still has something in it, and releases that on its own streams.
//
// Owns a stream of ours, on which the arena is released when nothing is left: after all work that may use it. No
// waiting by the host. Driver calls are made with the arena's context current, such that no capture of the program's is
// in their way. Not synchronised: the replayer's lock guards it. Where the driver refuses one of these calls the arena
// stays for good.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class LeftArena {
 public:
  explicit LeftArena(const DriverApi& driver) : driver_(driver) {}

  // What was put on this stream comes before the arena's end, as all that the step has done with it does. Whether that
  // is so.
  bool begin(CUcontext context, CUstream last);
  bool has_begun() const { return stream_ != nullptr; }
  // The program releases a part on this stream: what was put there before that comes before the arena's end. Whether
  // that is so: not where the stream captures.
  bool follow(CUstream stream);
  // Releases the arena. Whether it went. There is none any more, either way.
  bool end(std::uint64_t arena);
  // The context has ended, and the stream with it.
  void context_gone() { stream_ = nullptr; }

 private:
  const DriverApi& driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace nimble
