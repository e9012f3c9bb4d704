// The simulated clock: host time, and a list schedule of every op on a simulated device, in the order of submission. An
// op starts when it was submitted, its predecessors have ended, and what it runs on is free: as many multiprocessors as
// a kernel fills, or the copy engine of its direction. Guarded by the driver's mutex.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "include/nimble/internal/device_model.h"
#include "tests/simcuda/engine/work.h"

namespace simcuda {

class SimClock {
 public:
  SimClock();

  const nimble::DeviceModel& model() const { return model_; }
  double now() const { return host_us_; }
  // Since the last reset.
  double host_us() const { return host_us_ - origin_; }
  double device_end_us() const { return device_end_us_ > origin_ ? device_end_us_ - origin_ : 0; }
  double busy_us() const;

  // What the host spent in calls, waiting left out.
  double submit_us() const { return submit_us_; }

  void spend(double us) {
    host_us_ += us;
    submit_us_ += us;
  }
  // The host learned that something has ended.
  void see(double us) { host_us_ = us > host_us_ ? us : host_us_; }
  // The host waited for something that ended at this time.
  void wait_until(double us);

  // Puts work on the device, not before `ready`, and returns when it ends.
  double place(const Work& work, double ready, nimble::CopyDirection direction);

  // When the work that was placed last begins.
  double last_begin_us() const { return last_begin_us_; }

  // Counts from now on. What is on the device stays there.
  void reset();

 private:
  double place_kernel(double ready, int multiprocessors, double length);
  double place_on(nimble::Engine engine, double ready, double length);
  void mark_busy(double begin, double end);

  // So many multiprocessors are free from this time on.
  struct Free {
    double from;
    int count;
  };
  struct Interval {
    double begin, end;
  };

  nimble::DeviceModel model_;
  double host_us_ = 0, submit_us_ = 0, device_end_us_ = 0, origin_ = 0, last_begin_us_ = 0;
  std::vector<Free> free_;                              // sorted by time; counts add up to the device's multiprocessors
  std::array<double, nimble::kEngines> engine_free_{};  // when each copy engine is
  double busy_before_ = 0;                              // of intervals that no later op can touch
  std::vector<Interval> busy_;                          // disjoint, sorted
};

}  // namespace simcuda
