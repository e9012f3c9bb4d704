// Models how the driver lays out one graph's allocations: how much device memory a launch needs, and how much of it the
// graph's unfreed allocations take.
//
// As measured (H200, driver 580.159): first fit, else at the end; if there is not enough left at the end, the graph's
// memory grows by as many pieces of 32 MiB as the allocation fills.
//
// A value. Not synchronised.
#pragma once

#include <cstdint>
#include <map>

namespace nimble::shim {

class GraphHeap {
 public:
  static constexpr std::uint64_t kPiece = std::uint64_t{32} << 20;

  // `name`: any number that identifies an allocation among the live ones.
  void allocate(std::uint64_t name, std::uint64_t bytes);
  // No effect if there is none of that name.
  void release(std::uint64_t name);

  // All that the graph needs; and the pieces in use now.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t held() const;

 private:
  std::map<std::uint64_t, std::uint64_t> taken_;  // bytes by begin
  std::map<std::uint64_t, std::uint64_t> begin_;  // by name
  std::uint64_t bytes_ = 0;
};

}  // namespace nimble::shim
