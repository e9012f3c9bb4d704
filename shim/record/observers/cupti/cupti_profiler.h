// CUPTI as a witness: it sits inside the driver, so it also sees work that bypassed the shim, and knows when the GPU
// ran each op. Used only while recording and released afterwards, since a process has room for one CUPTI client.
//
// start() and stop() are called by one thread at a time. CUPTI calls back on the program's threads (each call) and on
// one of its own (times); both callbacks only count and hand over. One profiler per process.
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
    bool times = true;                                          // collect those of kernels, copies and sets
    std::function<void(std::span<const DeviceTime>)> on_times;  // from any thread; must not throw
  };

  explicit CuptiProfiler(Options options);
  // Leaks what CUPTI may still call.
  ~CuptiProfiler();
  CuptiProfiler(const CuptiProfiler&) = delete;
  CuptiProfiler& operator=(const CuptiProfiler&) = delete;

  // Empty if CUPTI is active now; otherwise why it is not.
  std::string start(int driver_version);

  // Stops collecting times; those of ops submitted before are handed over as CUPTI delivers them. Once this returns
  // CUPTI only counts the calls that follow. Idempotent.
  void stop_times();

  // Hands over outstanding times, and releases CUPTI. Idempotent.
  void stop();

  // The counts up to now, or up to stop().
  Coverage coverage() const;

 private:
  class Client;  // cupti.h cannot be included with the shim's internal view of cuda.h
  Client* const client_;
};

}  // namespace nimble::shim
