// How long a step would take, with the host issuing it and the device following: a prediction, never a measurement.
//
// Times in microseconds. Pure functions over immutable inputs; any thread. No errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "analyzer/model/host_time.h"
#include "analyzer/model/predict.h"
#include "analyzer/plan/segments.h"
#include "nimble/internal/device_model.h"

namespace nimble::analyzer {

// The two clocks of a step, as its ops come one after another: the host issues, the device follows.
class HostClocks {
 public:
  HostClocks(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs,
             const HostTime& host)
      : model_(device), segments_(segments), costs_(costs), program_(host) {}

  // The program comes to this op, and has waited for the device first if it does so. A direct op is submitted; any
  // other is held until launch() is called.
  void issue(std::uint32_t op) {
    come_to(op);
    if (segments_.submit[op] == Submit::direct)
      submit(op);
    else
      host_ += model_.replayed_call_host_us;
  }
  // The same if every op is submitted by its own call.
  void issue_and_submit(std::uint32_t op) {
    come_to(op);
    submit(op);
  }
  // A graph of so many nodes is launched. device_until() says how long it takes on the device.
  void launch(std::uint64_t nodes) { host_ += graph_launch_us(model_, nodes); }
  void device_until(double end_us) { device_ = std::max(device_, end_us); }
  // The step is over.
  void end() {
    if (segments_.observed_at_end) wait();
  }

  double host() const { return host_; }
  double device() const { return device_; }

 private:
  void come_to(std::uint32_t op) {
    if (segments_.observed[op]) wait();
    host_ += program_.before_us[op];
  }
  void wait() { host_ = std::max(host_, device_) + model_.synchronize_host_us; }
  void submit(std::uint32_t op) {
    host_ += costs_[op].host_us;
    device_ = std::max(host_, device_ + model_.stream_edge_us) + costs_[op].device_us;
  }

  const DeviceModel& model_;
  const Segmentation& segments_;
  std::span<const OpCost> costs_;
  const HostTime& program_;
  double host_ = 0, device_ = 0;
};

// A whole step, replayed: each segment as one graph once its last op has come, direct ops by their own calls.
double predict_replay(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs,
                      const HostTime& host, std::span<const double> segment_us);

// The same step as the program submits it: call by call, on one stream.
double predict_program(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs,
                       const HostTime& host);

}  // namespace nimble::analyzer
