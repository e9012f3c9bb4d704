// Whether the graphs that were launched in another order than the program's have finished.
//
// By an event after the last of them, which is recorded when someone asks, or where the stream may go from then on.
// Owns that event. Driver calls are made with the step's context current. Not synchronised: the replayer's lock guards
// it. Errors: what cannot be asked counts as running.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class GraphsEnd {
 public:
  // All must outlive it.
  GraphsEnd(const DriverApi& driver, const StepStreams& streams, const Captures& captures)
      : driver_(driver), streams_(streams), captures_(captures) {}

  // One was launched, on the launch stream.
  void launched() {
    ++launches_;
    stream_ = streams_.launch();
  }
  // Records the event after the last one, where that is needed and possible.
  void mark();
  // Asks the driver.
  bool are_through();
  // Their stream may end without our being told.
  void forget_stream() { stream_ = {}; }
  // The context is gone, with all of them and with the event.
  void abandon() {
    through_ = launches_;
    event_ = nullptr;
  }

 private:
  const DriverApi& driver_;
  const StepStreams& streams_;
  const Captures& captures_;
  std::uint64_t launches_ = 0, through_ = 0;  // so many of them are known to be through
  StreamRef stream_;                          // of the last one
  CUevent event_ = nullptr;
  std::uint64_t marked_ = 0;  // the launch that the event comes after
};

}  // namespace nimble
