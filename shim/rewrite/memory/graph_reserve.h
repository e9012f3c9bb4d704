// How much device memory the driver would keep for what captured graphs allocate, had their allocations become nodes:
// what a program is told of free memory is then the same with Nimble as without.
//
// As measured (H200, driver 580.159, CUDA 13.0): memory comes in pieces (graph_heap.h), with the launch that needs it.
// Pieces in which a graph leaves nothing are shared by all launches that do not run at the same time, those of one
// stream among them; the others are its own until what lies there is freed. Nothing goes back to the device before
// cuDeviceGraphMemTrim, or before an allocation that needs it.
//
// It is the device's: contexts come and go, and share it.
//
// Owns nothing but these numbers. A lock of its own; any thread.
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
  // A graph was launched on the stream with this key. `bytes`: of the pieces in which it leaves nothing.
  // `moment`: as of TransientMemory.
  void launched(Place place, std::uint64_t stream, std::uint64_t bytes, std::uint64_t moment);
  // Bytes of the pieces in which launches there have left something, by now.
  void left(Place place, std::uint64_t bytes);
  // The host has waited for all that was submitted in the context before this moment.
  void waited(CUcontext context, std::uint64_t moment);
  // So for this stream, or it has ended, and nobody can tell any more.
  void waited_for_stream(std::uint64_t stream, std::uint64_t moment);
  // What no launch uses goes back to the device.
  void trim(CUdevice device);
  // Its work is over, and it has nothing left. Null: all of them.
  void context_ends(CUcontext context);

  // How much the driver would have of this device.
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
