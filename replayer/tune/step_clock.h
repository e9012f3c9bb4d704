// How long steps take on the GPU, from an event before a step's first op to one behind its last.
//
// The events go into the step's stream, and nobody waits for them: times are read when they are there. Owns its events,
// which it makes as they are needed and keeps until close(), kMost pairs at most; while all are in use nothing is
// timed. Needs the step's context current. Not synchronised: its owner's lock guards it.
#pragma once

#include <array>

#include "replayer/driver/driver_api.h"
#include "replayer/tune/tuner.h"

namespace nimble {

class StepClock {
 public:
  explicit StepClock(const DriverApi& driver) : driver_(driver) {}

  // A step begins, or has ended; the latter only where the former did.
  void begin(Way way, CUstream stream);
  void end(CUstream stream);
  // The step that has begun will not be timed.
  void cancel() { begun_ = nullptr; }
  bool running() const { return begun_ != nullptr; }
  // Of which kind of step it is.
  void of_kind(std::uint32_t kind) {
    if (begun_) begun_->kind = kind;
  }
  // Times are still to come; and so many that no further step can be timed.
  bool late() const { return oldest_ != newest_; }
  bool full() const { return newest_ - oldest_ == kMost; }

  // Calls `function` with kind, way and microseconds of each step whose time is there by now, in their order.
  template <typename Function>
  void read(Function function) {
    for (; oldest_ != newest_; ++oldest_) {
      Pair& pair = pairs_[oldest_ % kMost];
      const CUresult result = driver_.cuEventQuery_(pair.end);
      if (result == CUDA_ERROR_NOT_READY) return;
      float ms = 0;
      if (result == CUDA_SUCCESS && driver_.cuEventElapsedTime_(&ms, pair.begin, pair.end) == CUDA_SUCCESS)
        function(pair.kind, pair.way, static_cast<double>(ms) * 1e3);
    }
  }
  // The context is gone, and all events with it.
  void abandon();
  // Gives its events back; times that are still to come are lost.
  void close();

 private:
  static constexpr std::size_t kMost = 16;
  struct Pair {
    CUevent begin = nullptr, end = nullptr;
    Way way = Way::own;
    std::uint32_t kind = 0;
  };

  const DriverApi& driver_;
  std::array<Pair, kMost> pairs_;
  std::size_t oldest_ = 0, newest_ = 0;  // of those that wait to be read: a ring
  Pair* begun_ = nullptr;
};

}  // namespace nimble
