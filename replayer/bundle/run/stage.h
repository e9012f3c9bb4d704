// What all ways to run a bundle's step share in this process: its memory, its code, its ops, its memory's contents. And
// how a way is measured.
//
// Owns all of that, and refers to the bundle and the step. One thread, on which the driver's context is current from a
// Stage's construction. Errors: InputError, DriverError, Refused.
#pragma once

#include <cstdint>
#include <vector>

#include "replayer/bundle/process/live_driver.h"
#include "replayer/bundle/process/placement.h"
#include "replayer/bundle/run/contents.h"
#include "replayer/bundle/run/live_ops.h"
#include "replayer/bundle/run/report.h"
#include "replayer/bundle/run/runs.h"
#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/payloads.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

class Stage {
 public:
  Stage(const BundleFiles& files, const RecordedStep& step, int device);

  // Runs the step repeatedly, each time from the same memory, until the result differs from the recording. Throws
  // Refused if it does and this way may not be a valid test.
  void measure(Run& run, std::uint32_t warmup, std::uint32_t repeat, WayResult& way);

  const BundleFiles& files;
  const RecordedStep& step;
  const Payloads payloads;
  LiveDriver driver;
  Placement placement;

 private:
  // The bundle's loaded code.
  struct Modules {
    Modules(LiveDriver& driver, const BundleFiles& files);
    ~Modules();
    LiveDriver& driver;
    std::vector<CUmodule> all;
  };
  const Placement& add_globals();
  Modules modules_;

 public:
  LiveOps ops;
  Contents contents;
};

}  // namespace nimble::bundle
