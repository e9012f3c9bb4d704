// The arena once replay has stood aside: the program still has memory in it, and releases that on its own streams.
//
// Owns a stream, on which the arena is released when nothing is left, after all work that may use it. The host
// does not wait. Makes driver calls with the arena's context current, such that the program's captures are not in their
// way. Not synchronised: the replayer's lock guards it. If the driver refuses one of these calls the arena stays for
// good.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"

namespace nimble {

class LeftArena {
 public:
  explicit LeftArena(const DriverApi& driver) : driver_(driver) {}

  // Orders the arena's end after all work on this stream, which covers all that the step has done with it. Whether that
  // succeeded.
  bool begin(CUcontext context, CUstream last);
  bool has_begun() const { return stream_ != nullptr; }
  // The program releases a part on this stream: orders the arena's end after earlier work there. Whether that
  // succeeded: not if the stream captures.
  bool follow(CUstream stream);
  // Releases the arena. Whether that succeeded; the arena is given up either way.
  bool end(std::uint64_t arena);
  // The context has ended, and the stream with it.
  void context_gone() { stream_ = nullptr; }

 private:
  const DriverApi& driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace nimble
