#include "analyzer/model/predict.h"

#include <algorithm>
#include <queue>

namespace nimble::analyzer {
namespace {

enum class Side { host_pinned, device, unknown };

Side side_of(const ObjectTable& table, std::uint32_t call, std::uint32_t at) {
  for (const PointerWord& pointer : table.pointers(call)) {
    if (pointer.at != at) continue;
    MemoryKind memory = table.objects()[pointer.object].memory;
    return memory == MemoryKind::pinned || memory == MemoryKind::registered ? Side::host_pinned : Side::device;
  }
  return Side::unknown;
}

OpCost cost_of(const DeviceModel& device, const Trace& trace, const ObjectTable& table, std::uint32_t index) {
  const TraceCall& call = trace.calls[index];
  OpCost cost;
  cost.host_us = device.launch_host_us;
  switch (call.kind) {
    case CallKind::launch: {
      std::uint64_t threads = std::uint64_t{call.block[0]} * call.block[1] * call.block[2];
      // At most 2^31 * 2^16 * 2^16: fits.
      std::uint64_t blocks = std::uint64_t{call.grid[0]} * call.grid[1] * call.grid[2];
      cost.device_us = kernel_us(device, blocks, threads);
      cost.engine = Engine::multiprocessors;
      cost.multiprocessors = multiprocessors_of(device, blocks, threads);
      cost.waves = static_cast<int>(std::min<std::uint64_t>(waves_of(device, blocks, threads), 1 << 20));
      break;
    }
    case CallKind::copy: {
      Side from = side_of(table, index, kAtSrc), to = side_of(table, index, kAtDst);
      CopyDirection direction = CopyDirection::kDeviceToDevice;
      if (from == Side::unknown || to == Side::unknown) {
        direction = CopyDirection::kPageable;
      } else if (from == Side::host_pinned) {
        direction = CopyDirection::kHostToDevice;
      } else if (to == Side::host_pinned) {
        direction = CopyDirection::kDeviceToHost;
      }
      const bool from_device = direction == CopyDirection::kPageable && from != Side::unknown;
      cost.engine = from_device ? Engine::device_to_host : engine_of(direction);
      cost.device_us = copy_us(device, call.width * call.height, direction);
      break;
    }
    case CallKind::set:
      cost.device_us = set_us(device, call.width * call.height);
      cost.engine = Engine::device_to_device;
      break;
    case CallKind::event_record:
    case CallKind::event_wait:
      cost.host_us = device.event_host_us;
      break;
    case CallKind::alloc_async:
    case CallKind::free_async:
      cost.host_us = device.allocation_host_us;
      break;
    case CallKind::host_function:
      cost.device_us = device.host_function_us;
      break;
    default:  // the trace does not say what it does
      cost.device_us = device.kernel_base_us;
      break;
  }
  return cost;
}

}  // namespace

double bandwidth_share(const DeviceModel& device, const OpCost& cost, std::uint64_t bytes, bool exact) {
  if (cost.device_us <= 0) return 0;
  double share = static_cast<double>(bytes) / (device.memory_gb_s * 1e3 * cost.device_us);
  if (share > 1 && !exact) return 0;  // it names more than it touches, and nothing says how much
  // A few multiprocessors cannot use all of the memory's bandwidth.
  double most = cost.engine == Engine::multiprocessors
                    ? cost.multiprocessors * device.multiprocessor_gb_s / device.memory_gb_s
                    : 1;
  return std::min({share, most, 1.0});
}

std::vector<OpCost> predict_costs(const DeviceModel& device, const Trace& trace, const ObjectTable& table,
                                  std::span<const std::uint32_t> calls, const StepObjects& objects,
                                  const StepAccesses& accesses, std::span<const double> measured_us) {
  std::vector<OpCost> costs;
  costs.reserve(calls.size());
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    OpCost cost = cost_of(device, trace, table, calls[op]);
    if (measured_us[op] >= 0) cost.device_us = measured_us[op];
    std::uint64_t bytes = 0;
    bool exact = true;
    for (const Access& access : accesses.of(op)) {
      // Host memory goes over another bus.
      MemoryKind memory = objects.objects[access.object].memory;
      if (memory == MemoryKind::pinned || memory == MemoryKind::registered) continue;
      std::uint64_t touched = access.rect.width * access.rect.height;
      bytes += touched * ((access.reads ? 1 : 0) + (access.writes ? 1 : 0));
      exact = exact && !access.whole;
    }
    cost.bandwidth = bandwidth_share(device, cost, bytes, exact);
    costs.push_back(cost);
  }
  return costs;
}

std::vector<std::uint32_t> critical_first(const Dag& dag, std::span<const double> duration_us) {
  std::uint32_t n = dag.nodes();
  std::vector<double> remaining(n);
  std::vector<std::uint32_t> missing(n);
  for (std::uint32_t node = n; node-- > 0;) {
    double longest = 0;
    for (std::uint32_t to : dag.successors(node)) longest = std::max(longest, remaining[to]);
    remaining[node] = longest + duration_us[node];
    missing[node] = static_cast<std::uint32_t>(dag.predecessors(node).size());
  }
  auto later = [&](std::uint32_t a, std::uint32_t b) {
    return remaining[a] != remaining[b] ? remaining[a] < remaining[b] : a > b;
  };
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, decltype(later)> ready(later);
  for (std::uint32_t node = 0; node < n; ++node)
    if (missing[node] == 0) ready.push(node);
  std::vector<std::uint32_t> order;
  order.reserve(n);
  while (!ready.empty()) {
    std::uint32_t node = ready.top();
    ready.pop();
    order.push_back(node);
    for (std::uint32_t to : dag.successors(node))
      if (--missing[to] == 0) ready.push(to);
  }
  return order;
}

}  // namespace nimble::analyzer
