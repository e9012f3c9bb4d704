// Where the driver lays out what one graph allocates: how much device memory a launch needs, and how much of it is
// taken by what the graph does not free itself.
//
// As measured (H200, driver 580.159): an allocation goes into the first hole that it fits into, else to the end; where
// there is not enough left at the end, the graph's memory grows by as many pieces of 32 MiB as the allocation fills.
//
// A value. Not synchronised.
#pragma once

#include <cstdint>
#include <map>

namespace nimble::shim {

class GraphHeap {
 public:
  static constexpr std::uint64_t kPiece = std::uint64_t{32} << 20;

  // `name`: any number that tells an allocation from others that are there at the time.
  void allocate(std::uint64_t name, std::uint64_t bytes);
  // Nothing, where there is none of that name.
  void release(std::uint64_t name);

  // All that the graph needs, and the pieces in which something lies by now.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t held() const;

 private:
  std::map<std::uint64_t, std::uint64_t> taken_;  // by where it begins: bytes
  std::map<std::uint64_t, std::uint64_t> begin_;  // by name
  std::uint64_t bytes_ = 0;
};

}  // namespace nimble::shim
