#include "analyzer/plan/host_clocks.h"

#include <algorithm>

namespace nimble::analyzer {

double predict_replay(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs,
                      const HostTime& host, std::span<const double> segment_us) {
  HostClocks clocks(device, segments, costs, host);
  for (std::uint32_t op = 0; op < costs.size(); ++op) {
    clocks.issue(op);
    const std::uint32_t segment = segments.segment[op];
    if (segment == kNone || op != segments.segments[segment].ops.back()) continue;
    clocks.launch(segments.segments[segment].ops.size());
    clocks.device_until(std::max(clocks.host(), clocks.device() + device.stream_edge_us) + segment_us[segment]);
  }
  clocks.end();
  return std::max(clocks.host(), clocks.device());
}

double predict_program(const DeviceModel& device, const Segmentation& segments, std::span<const OpCost> costs,
                       const HostTime& host) {
  HostClocks clocks(device, segments, costs, host);
  for (std::uint32_t op = 0; op < costs.size(); ++op) clocks.issue_and_submit(op);
  clocks.end();
  return std::max(clocks.host(), clocks.device());
}

}  // namespace nimble::analyzer
