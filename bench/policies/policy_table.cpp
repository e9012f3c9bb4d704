// Prints each policy's result for each op graph: its predicted time over the critical path, its streams and its
// synchronisations. With --json as one JSON object, for bench/host/run_benchmarks.py.
//
// The critical path is the longest chain of ops with the latency between them, which no schedule can beat. Where a
// graph needs more than the device has, `bound` says how far from that limit the best conceivable schedule is.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "analyzer/base/json_text.h"
#include "analyzer/policies/segment_plan.h"
#include "bench/policies/graphs.h"

namespace {

using namespace nimble::analyzer;
using nimble::DeviceModel;
using nimble::bench::OpGraph;

double critical_path_us(const DeviceModel& device, const OpGraph& graph) {
  std::vector<double> ends(graph.dag.nodes(), 0);
  double longest = 0;
  for (std::uint32_t node = 0; node < graph.dag.nodes(); ++node) {
    for (std::uint32_t from : graph.dag.predecessors(node))
      ends[node] = std::max(ends[node], ends[from] + device.graph_edge_us);
    longest = std::max(longest, ends[node] += graph.costs[node].device_us);
  }
  return longest;
}

// The least time in which the device could do all of the work without any ordering.
double work_us(const DeviceModel& device, const OpGraph& graph) {
  double multiprocessors = 0, bandwidth = 0;
  for (const OpCost& cost : graph.costs) {
    multiprocessors += cost.device_us * cost.multiprocessors;
    bandwidth += cost.device_us * cost.bandwidth;
  }
  return std::max(multiprocessors / device.multiprocessors, bandwidth);
}

struct Row {
  std::string_view policy;
  double ratio;
  std::uint32_t lanes, synchronizations;
};

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  std::uint32_t max_lanes = kDefaultMaxLanes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--max-streams") == 0 && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      max_lanes = static_cast<std::uint32_t>(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: policy_table [--json] [--max-streams N]\n");
      return 2;
    }
  }
  DeviceModel device;
  JsonText out;
  out.open('{').key("max_streams").number(max_lanes).key("graphs").open('[');
  if (!json) {
    std::printf("%-26s %6s %9s %6s", "predicted / critical path", "ops", "critical", "bound");
    for (std::string_view name : kPolicyNames) std::printf("  %-18s", std::string(name).c_str());
    std::printf("\n");
  }
  for (const OpGraph& graph : nimble::bench::all_graphs()) {
    double critical = critical_path_us(device, graph), bound = std::max(1.0, work_us(device, graph) / critical);
    std::vector<Row> rows;
    for (std::string_view name : kPolicyNames) {
      SegmentPlan plan = make_plan(device, graph.dag, graph.costs,
                                   make_policy(name)->assign(graph.dag, {graph.costs, device, max_lanes}));
      rows.push_back({name, plan.predicted_us / critical, plan.assignment.lanes, plan.synchronizations});
    }
    if (!json) {
      std::printf("%-26s %6u %6.0f us %6.3f", graph.name.c_str(), graph.dag.nodes(), critical, bound);
      for (const Row& row : rows) std::printf("  %6.3f %4u %6u", row.ratio, row.lanes, row.synchronizations);
      std::printf("\n");
      continue;
    }
    out.newline().open('{').key("graph").text(graph.name).key("ops").number(graph.dag.nodes());
    out.key("edges").number(graph.dag.edges().size()).key("critical_path_us").real(critical).key("bound").real(bound);
    out.key("policies").open('[');
    for (const Row& row : rows) {
      out.open('{').key("policy").text(row.policy).key("predicted").real(row.ratio).key("streams").number(row.lanes);
      out.key("synchronizations").number(row.synchronizations).close('}');
    }
    out.close(']').close('}');
  }
  out.close(']').close('}');
  if (json) std::printf("%s\n", out.take().c_str());
  return 0;
}
