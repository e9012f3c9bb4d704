// How long steps take on the GPU, from an event before a step's first op to one after its last.
//
// The events go into the step's stream, and are not waited for: times are read once available. Owns its events, at most
// kMost pairs, made as needed and kept until close(); while all are in use nothing is timed. Needs the step's context
// current. Not synchronised: its owner's lock guards it.
#pragma once

#include <array>

#include "replayer/driver/driver_api.h"
#include "replayer/tune/tuner.h"

namespace nimble {

class StepClock {
 public:
  explicit StepClock(const DriverApi& driver) : driver_(driver) {}

  // A step begins; it has ended, only if it was begun.
  void begin(Way way, CUstream stream);
  void end(CUstream stream);
  // The step that has begun will not be timed.
  void cancel() { begun_ = nullptr; }
  bool running() const { return begun_ != nullptr; }
  // The step's kind.
  void of_kind(std::uint32_t kind) {
    if (begun_) begun_->kind = kind;
  }
  // Whether times are outstanding; and so many that no further step can be timed.
  bool late() const { return oldest_ != newest_; }
  bool full() const { return newest_ - oldest_ == kMost; }

  // Calls `function` with kind, way and microseconds of each step whose time is available, in order.
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
  // Destroys its events; outstanding times are lost.
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
  std::size_t oldest_ = 0, newest_ = 0;  // a ring of pairs to be read
  Pair* begun_ = nullptr;
};

}  // namespace nimble
