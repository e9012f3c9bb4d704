#include "analyzer/plan/segment_splitting.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "analyzer/plan/host_clocks.h"

namespace nimble::analyzer {
namespace {

// A cut has to gain at least this much.
constexpr double kLeastGainUs = 5, kLeastGain = 0.02;
// Anything shorter is not a graph.
constexpr std::uint32_t kLeastOps = 2;

// Lower bounds for the time that the device takes for the ops from one place to another.
class Bounds {
 public:
  Bounds(const DeviceModel& device, const Dag& graph, const std::vector<std::uint32_t>& ops,
         std::span<const OpCost> costs)
      : device_(device), graph_(graph), ops_(ops), costs_(costs), end_(ops.size(), 0) {}

  // Calls `function` with each of the places after places[from], and the bound for what is between the two.
  template <typename Function>
  void from(std::size_t from, const std::vector<std::uint32_t>& places, Function function) {
    const std::uint32_t begin = places[from];
    std::array<double, kEngines + 1> taken{};  // of each engine, then of the memory
    double path = 0;
    std::size_t next = from + 1;
    for (std::uint32_t node = begin; next < places.size(); ++node) {
      if (node == places[next]) {
        const double dispatch = device_.graph_dispatch_us * (node - begin);
        function(next++, std::max({path, dispatch, *std::max_element(taken.begin(), taken.end())}));
        if (next == places.size()) return;
      }
      const OpCost& cost = costs_[ops_[node]];
      double start = 0;
      for (std::uint32_t before : graph_.predecessors(node))
        if (before >= begin) start = std::max(start, end_[before] + device_.graph_edge_us);
      end_[node] = start + cost.device_us;
      path = std::max(path, end_[node]);
      const double share = cost.engine == Engine::multiprocessors
                               ? static_cast<double>(cost.multiprocessors) / device_.multiprocessors
                               : 1;
      if (cost.engine != Engine::none) taken[static_cast<std::size_t>(cost.engine)] += cost.device_us * share;
      taken[kEngines] += cost.device_us * cost.bandwidth;
    }
  }

 private:
  const DeviceModel& device_;
  const Dag& graph_;
  const std::vector<std::uint32_t>& ops_;
  std::span<const OpCost> costs_;
  std::vector<double> end_;  // per node, for those that were gone through last
};

// Where a segment may be cut: nodes, the first and one past the last among them. `issued_us`: per node.
std::vector<std::uint32_t> places_of(std::span<const double> issued_us) {
  const auto nodes = static_cast<std::uint32_t>(issued_us.size());
  std::vector<std::uint32_t> places{0};
  const double begin = issued_us.front(), length = issued_us.back() - begin;
  for (std::uint32_t i = 1; i < kCutPlaces; ++i) {
    const auto at = std::upper_bound(issued_us.begin(), issued_us.end(), begin + length * i / kCutPlaces);
    const auto node = static_cast<std::uint32_t>(at - issued_us.begin());
    if (node > places.back() && node < nodes) places.push_back(node);
  }
  places.push_back(nodes);
  return places;
}

struct Cuts {
  std::vector<std::uint32_t> places;  // where the pieces begin
  double end_us = 0;
};

// `device_us`: when the device has done everything before the segment.
Cuts cut(const DeviceModel& device, Bounds& bounds, std::span<const double> issued_us, double device_us) {
  const std::vector<std::uint32_t> places = places_of(issued_us);
  std::vector<double> end(places.size(), std::numeric_limits<double>::infinity());
  std::vector<std::size_t> before(places.size(), 0);
  end.front() = device_us;
  double whole = 0;
  for (std::size_t i = 0; i + 1 < places.size(); ++i)
    bounds.from(i, places, [&](std::size_t j, double takes) {
      const double issued = issued_us[places[j] - 1] + graph_launch_us(device, places[j] - places[i]);
      const double ends = std::max(issued, end[i] + device.stream_edge_us) + takes;
      if (i == 0 && j + 1 == places.size()) whole = ends;
      if (places[j] - places[i] < kLeastOps || ends >= end[j]) return;
      end[j] = ends;
      before[j] = i;
    });
  if (whole - end.back() < std::max(kLeastGainUs, kLeastGain * (whole - issued_us.front()))) return {{0}, whole};
  Cuts result{{}, end.back()};
  for (std::size_t at = places.size() - 1; at != 0; at = before[at]) result.places.push_back(places[before[at]]);
  std::reverse(result.places.begin(), result.places.end());
  return result;
}

// Per op: whether the host waits for the GPU somewhere after it.
std::vector<bool> waited_for(const Segmentation& segments) {
  std::vector<bool> result(segments.submit.size());
  bool waits = segments.observed_at_end;
  for (std::size_t op = result.size(); op-- > 0;) {
    result[op] = waits;
    waits = waits || segments.observed[op] != 0;
  }
  return result;
}

}  // namespace

Segmentation split_segments(const DeviceModel& device, const Segmentation& segments, std::span<const Dag> graphs,
                            std::span<const OpCost> costs, const HostTime& host) {
  Segmentation result = segments;
  if (host.repeats == 0) return result;
  result.segments.clear();
  const std::vector<bool> waited = waited_for(segments);
  HostClocks clocks(device, segments, costs, host);
  std::vector<double> issued;
  for (std::uint32_t op = 0; op < costs.size(); ++op) {
    clocks.issue(op);
    const std::uint32_t s = segments.segment[op];
    if (s == kNone) continue;
    const std::vector<std::uint32_t>& ops = segments.segments[s].ops;
    issued.push_back(clocks.host());
    if (op != ops.back()) continue;
    Bounds bounds(device, graphs[s], ops, costs);
    Cuts cuts{{0}, 0};
    if (waited[op]) {
      cuts = cut(device, bounds, issued, clocks.device());
    } else {
      bounds.from(0, {0, static_cast<std::uint32_t>(ops.size())}, [&](std::size_t, double takes) {
        cuts.end_us = std::max(clocks.host(), clocks.device() + device.stream_edge_us) + takes;
      });
    }
    for (std::size_t i = 0; i < cuts.places.size(); ++i) {
      const std::uint32_t from = cuts.places[i];
      const auto to = static_cast<std::uint32_t>(i + 1 < cuts.places.size() ? cuts.places[i + 1] : ops.size());
      for (std::uint32_t node = from; node < to; ++node)
        result.segment[ops[node]] = static_cast<std::uint32_t>(result.segments.size());
      result.segments.push_back({{ops.begin() + from, ops.begin() + to}});
      clocks.launch(to - from);
    }
    clocks.device_until(cuts.end_us);
    issued.clear();
  }
  place_waits(result);
  return result;
}

}  // namespace nimble::analyzer
