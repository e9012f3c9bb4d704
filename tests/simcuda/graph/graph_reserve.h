// The device memory that the driver keeps for what graphs allocate, as measured (H200, driver 580.159): it comes in
// pieces of 32 MiB with the launch that needs it, as many as an allocation fills that fits into no hole and not to the
// end. Pieces in which a launch leaves nothing are shared with the launches that follow it on its stream, and with all
// once it is done; the others are its own until the program frees what lies there. Nothing goes back to the device
// before cuDeviceGraphMemTrim, or before an allocation that would fail without it; nor with the context. That pieces
// are smaller where memory is short is our guess.
//
// Guarded by the driver's mutex.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tests/simcuda/engine/op.h"

namespace simcuda {

struct Block;
struct Driver;

class GraphReserve {
 public:
  explicit GraphReserve(Driver& driver) : driver_(driver) {}

  // What one launch allocates and frees, in its order.
  struct Change {
    Block* block;
    bool frees;
  };
  // A graph is about to be launched on the stream with this id. False where the device has not enough.
  bool launch(std::uint64_t stream, const std::vector<Change>& changes);
  // `end` is the last op of that launch.
  void launched(std::uint64_t stream, OpRef end) { streams_[stream].end = end; }
  // Gives back what no launch needs.
  void trim();
  // How much it has, and the most that it ever had.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t high() const { return high_; }

 private:
  struct OnStream {
    std::uint64_t bytes = 0;
    OpRef end;
  };

  std::uint64_t running(std::uint64_t but_for = 0) const;
  std::uint64_t left() const;
  bool grow_to(std::uint64_t bytes);

  Driver& driver_;
  std::unordered_map<std::uint64_t, OnStream> streams_;  // by id, which are from 1
  std::uint64_t bytes_ = 0, high_ = 0, launches_ = 0;
};

}  // namespace simcuda
