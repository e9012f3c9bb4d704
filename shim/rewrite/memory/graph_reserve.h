// How much device memory the driver would keep for captured graphs, had their allocations become nodes: so that a
// program is told the same amount of free memory with Nimble as without.
//
// As measured (H200, driver 580.159, CUDA 13.0): the launch that needs memory gets it, in pieces (graph_heap.h).
// Launches that do not run concurrently, such as those of one stream, share the pieces in which a graph leaves nothing;
// the others are its own until their content is freed. Nothing goes back to the device before cuDeviceGraphMemTrim, or
// an allocation that needs it.
//
// The memory is the device's: contexts come and go, and share it.
//
// Owns only these numbers. A lock of its own; any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace nimble::shim {

class GraphReserve {
 public:
  // Where a graph runs.
  struct Place {
    CUdevice device = 0;
    CUcontext context = nullptr;
    auto operator<=>(const Place&) const = default;
  };
  // A graph was launched on the stream with this key. `bytes`: of the pieces in which it leaves nothing. `moment`: as
  // in TransientMemory.
  void launched(Place place, std::uint64_t stream, std::uint64_t bytes, std::uint64_t moment);
  // The bytes of the pieces in which launches there have left something.
  void left(Place place, std::uint64_t bytes);
  // The host has waited for all work submitted in the context before this moment.
  void waited(CUcontext context, std::uint64_t moment);
  // The same for this stream; or the stream has ended.
  void waited_for_stream(std::uint64_t stream, std::uint64_t moment);
  // Counts as returned to the device what no launch uses.
  void trim(CUdevice device);
  // Its work is over, and its memory gone. Null: all contexts.
  void context_ends(CUcontext context);

  // How much of this device's memory the driver would have.
  std::uint64_t bytes(CUdevice device) const;

 private:
  struct OnStream {
    std::uint64_t bytes = 0, moment = 0;
  };
  struct OfPlace {
    std::map<std::uint64_t, OnStream> running;  // by the stream's key
    std::uint64_t left = 0;
  };

  std::uint64_t needed(CUdevice device) const;
  void grow(CUdevice device);

  std::atomic<bool> any_runs_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::map<Place, OfPlace> places_;
  std::map<CUdevice, std::uint64_t> reserved_;
};

}  // namespace nimble::shim
