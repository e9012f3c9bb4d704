// A simple model of a GPU and of its driver's cost on the host: enough to compare two orders of the same work, and no
// more. The simulated driver's clock and the analyzer's predictions use it.
//
// The figures are those of a large data-centre GPU, rounded; a kernel's length is guessed from its shape alone.
// Whatever is computed from this model must be shown as simulated or predicted, never as measured.
//
// Plain data and pure functions: free of dependencies, safe to use from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace nimble {

struct DeviceModel {
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
  int blocks_per_multiprocessor = 32;
  int threads_per_warp = 32;

  // What a call costs the host, in microseconds.
  double launch_host_us = 2.5;          // one submission: a kernel, copy, set or host function
  double graph_launch_host_us = 2.5;    // one launch of an instantiated graph ...
  double graph_node_host_ns = 1.0;      // ... and this much for each of its nodes
  double event_host_us = 0.6;           // recording an event, or making a stream wait for one
  double allocation_host_us = 0.5;      // stream-ordered allocation and release
  double call_host_us = 0.1;            // any other call
  double replayed_call_host_us = 0.15;  // one that replay answers, and submits later: scripts/bench
  double synchronize_host_us = 4.0;     // from the end of the work to the return of the call that waits for it

  // What work costs the GPU.
  double kernel_base_us = 2.0;      // the shortest kernel
  double kernel_wave_us = 1.5;      // each further wave of blocks, once every multiprocessor is full
  double graph_edge_us = 0.7;       // from the end of a graph node to the start of one that depends on it
  double graph_dispatch_us = 0.18;  // between the starts of two nodes of a graph that are ready at the same time
  double stream_edge_us = 1.0;      // the same between two ops of one stream
  double copy_base_us = 1.5;        // the shortest copy or set
  double host_to_device_gb_s = 50.0;
  double device_to_host_gb_s = 50.0;
  double pageable_gb_s = 12.0;  // either way, if the host memory is not pinned
  double device_to_device_gb_s = 1800.0;
  double set_gb_s = 3000.0;
  double memory_gb_s = 4000.0;         // what all kernels together can draw from device memory ...
  double multiprocessor_gb_s = 110.0;  // ... and one multiprocessor alone: 64 bytes in a clock of 1.75 GHz
  double host_function_us = 3.0;
};

// What an op runs on. A copy engine takes one op at a time; there is one for each direction, and sets run on the last.
enum class Engine : std::uint8_t { none, multiprocessors, host_to_device, device_to_host, device_to_device };
inline constexpr std::size_t kEngines = static_cast<std::size_t>(Engine::device_to_device) + 1;

enum class CopyDirection { kHostToDevice, kDeviceToHost, kDeviceToDevice, kPageable };

// The engine of a copy. Of pageable memory: if it is copied to the device.
inline Engine engine_of(CopyDirection direction) {
  if (direction == CopyDirection::kDeviceToDevice) return Engine::device_to_device;
  return direction == CopyDirection::kDeviceToHost ? Engine::device_to_host : Engine::host_to_device;
}

// Blocks of this many threads that one multiprocessor runs at a time.
inline int blocks_at_once(const DeviceModel& device, std::uint64_t threads_per_block) {
  const std::uint64_t warp = static_cast<std::uint64_t>(device.threads_per_warp);
  const std::uint64_t threads = std::max<std::uint64_t>((threads_per_block + warp - 1) / warp * warp, warp);
  const std::uint64_t fit = static_cast<std::uint64_t>(device.threads_per_multiprocessor) / threads;
  return static_cast<int>(
      std::clamp<std::uint64_t>(fit, 1, static_cast<std::uint64_t>(device.blocks_per_multiprocessor)));
}

// Multiprocessors that a launch fills. Two launches that together fill no more than there are run concurrently.
inline int multiprocessors_of(const DeviceModel& device, std::uint64_t blocks, std::uint64_t threads_per_block) {
  const std::uint64_t per = static_cast<std::uint64_t>(blocks_at_once(device, threads_per_block));
  const std::uint64_t wanted = blocks / per + (blocks % per != 0 ? 1 : 0);
  return static_cast<int>(std::clamp<std::uint64_t>(wanted, 1, static_cast<std::uint64_t>(device.multiprocessors)));
}

// How often all multiprocessors are filled with the blocks of a launch, the last time perhaps in part.
inline std::uint64_t waves_of(const DeviceModel& device, std::uint64_t blocks, std::uint64_t threads_per_block) {
  const std::uint64_t at_once = static_cast<std::uint64_t>(blocks_at_once(device, threads_per_block)) *
                                static_cast<std::uint64_t>(device.multiprocessors);
  return std::max<std::uint64_t>(blocks / at_once + (blocks % at_once != 0 ? 1 : 0), 1);
}

inline double kernel_us(const DeviceModel& device, std::uint64_t blocks, std::uint64_t threads_per_block) {
  return device.kernel_base_us +
         device.kernel_wave_us * static_cast<double>(waves_of(device, blocks, threads_per_block) - 1);
}

inline double copy_us(const DeviceModel& device, std::uint64_t bytes, CopyDirection direction) {
  double gb_s = device.device_to_device_gb_s;
  if (direction == CopyDirection::kHostToDevice) gb_s = device.host_to_device_gb_s;
  if (direction == CopyDirection::kDeviceToHost) gb_s = device.device_to_host_gb_s;
  if (direction == CopyDirection::kPageable) gb_s = device.pageable_gb_s;
  return device.copy_base_us + static_cast<double>(bytes) / (gb_s * 1e3);
}

inline double set_us(const DeviceModel& device, std::uint64_t bytes) {
  return device.copy_base_us + static_cast<double>(bytes) / (device.set_gb_s * 1e3);
}

// What the host spends on launching a graph of so many nodes.
inline double graph_launch_us(const DeviceModel& device, std::uint64_t nodes) {
  return device.graph_launch_host_us + device.graph_node_host_ns * 1e-3 * static_cast<double>(nodes);
}

}  // namespace nimble
