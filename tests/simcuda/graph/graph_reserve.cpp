// See graph_reserve.h.
#include "tests/simcuda/graph/graph_reserve.h"

#include <algorithm>
#include <map>

#include "tests/simcuda/driver/entry.h"

namespace simcuda {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t{32} << 20;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t piece) { return (bytes + piece - 1) / piece * piece; }

}  // namespace

std::uint64_t GraphReserve::running(std::uint64_t but_for) const {
  std::uint64_t bytes = 0;
  for (const auto& [stream, on] : streams_)
    if (stream != but_for && on.end.pending()) bytes += on.bytes;
  return bytes;
}

// What one launch has left lies in the same pieces.
std::uint64_t GraphReserve::left(std::uint64_t piece) const {
  std::map<std::uint64_t, std::uint64_t> by_launch;
  for (const auto& [block, memory] : driver_.outstanding) by_launch[block->launch] += block->capacity;
  std::uint64_t bytes = 0;
  for (const auto& [launch, each] : by_launch) bytes += round_up(each, piece);
  return bytes;
}

bool GraphReserve::grow_to(std::uint64_t bytes) {
  if (bytes <= bytes_) return true;
  if (!driver_.memory.use(bytes - bytes_)) return false;
  bytes_ = bytes;
  high_ = std::max(high_, bytes_);
  return true;
}

bool GraphReserve::launch(std::uint64_t stream, std::uint64_t frees, std::uint64_t leaves) {
  OnStream& on = streams_[stream];
  const std::uint64_t before = on.end.pending() ? on.bytes : 0;
  const std::uint64_t needed = std::max(before, round_up(frees, kPiece));
  const std::uint64_t lasts = left(kPiece) + round_up(leaves, kPiece);
  // Where that is too much for the device, launches on different streams follow each other, too, and pieces are small.
  if (!grow_to(lasts + needed + running(stream)) && !grow_to(lasts + needed) && !grow_to(left(1) + leaves + frees))
    return false;
  on.bytes = needed;
  return true;
}

void GraphReserve::trim() {
  const std::uint64_t needed = std::min(bytes_, left(kPiece) + running());
  driver_.memory.use_no_more(bytes_ - needed);
  bytes_ = needed;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL(cuDeviceGraphMemTrim, kInit, (CUdevice device), (device)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  call.driver.graph_reserve.trim();
  return CUDA_SUCCESS;
}

// What is used and what is reserved are the same there.
SIM_CALL(cuDeviceGetGraphMemAttribute, kInit, (CUdevice device, CUgraphMem_attribute attribute, void* value),
         (device, attribute, value)) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GraphReserve& reserve = call.driver.graph_reserve;
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = reserve.bytes();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = reserve.high();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
