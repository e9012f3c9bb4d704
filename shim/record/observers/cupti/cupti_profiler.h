// CUPTI as a witness: it sits inside the driver, so it also sees work that went past the shim, and knows when the GPU
// ran what. Used while recording only, and let go afterwards, since a process has room for one such observer.
//
// start() and stop() are called by one thread at a time. CUPTI calls back on the program's threads (each call) and on
// one of its own (times); both only count, and hand over. One profiler per process.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "shim/record/facts/coverage.h"
#include "shim/record/facts/device_time.h"

namespace nimble::shim {

class CuptiProfiler {
 public:
  struct Options {
    bool times = true;                                          // ask for those of kernels, copies and sets
    std::function<void(std::span<const DeviceTime>)> on_times;  // from any thread; must not throw
  };

  explicit CuptiProfiler(Options options);
  // Leaves behind what CUPTI may still call.
  ~CuptiProfiler();
  CuptiProfiler(const CuptiProfiler&) = delete;
  CuptiProfiler& operator=(const CuptiProfiler&) = delete;

  // Empty if CUPTI is at work now; otherwise why it is not.
  std::string start(int driver_version);

  // Collects no more times; those of ops that were submitted before are handed over as CUPTI tells them. When this
  // returns CUPTI does not look at what is submitted from then on, but for counting calls. Idempotent.
  void stop_times();

  // Hands over the times that are still to come, and lets CUPTI go. Idempotent.
  void stop();

  // What was counted up to now, or up to stop().
  Coverage coverage() const;

 private:
  class Client;  // cupti.h does not go together with the internal view of cuda.h that the shim has
  Client* const client_;
};

}  // namespace nimble::shim
