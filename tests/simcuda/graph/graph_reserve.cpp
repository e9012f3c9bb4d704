// See graph_reserve.h.
#include "tests/simcuda/graph/graph_reserve.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/simcuda/driver/entry.h"

namespace simcuda {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t{32} << 20;

struct Range {
  std::uint64_t begin, end;
};

// The memory of one launch: what is taken, by place, and the most that ever was.
struct Layout {
  std::vector<std::pair<Range, Block*>> taken;
  std::uint64_t end = 0, most = 0;

  void allocate(Block* block) {
    std::uint64_t at = 0, sum = block->capacity;
    auto before = taken.begin();
    while (before != taken.end() && before->first.begin < at + block->capacity) at = before++->first.end;
    if (before == taken.end() && at + block->capacity > end) end += (block->capacity + kPiece - 1) / kPiece * kPiece;
    for (const auto& [range, other] : taken) sum += range.end - range.begin;
    most = std::max(most, sum);
    taken.insert(before, {{at, at + block->capacity}, block});
  }
  void free(const Block* block) {
    std::erase_if(taken, [&](const auto& one) { return one.second == block; });
  }
};

}  // namespace

std::uint64_t GraphReserve::running(std::uint64_t but_for) const {
  std::uint64_t bytes = 0;
  for (const auto& [stream, on] : streams_)
    if (stream != but_for && on.end.pending()) bytes += on.bytes;
  return bytes;
}

// What one launch has left may lie in the same pieces.
std::uint64_t GraphReserve::left() const {
  std::set<std::pair<std::uint64_t, std::uint64_t>> pieces;  // of launches
  for (const auto& [block, memory] : driver_.outstanding)
    for (std::uint64_t piece = block->begin / kPiece; piece * kPiece < block->begin + block->capacity; ++piece)
      pieces.emplace(block->launch, piece);
  return pieces.size() * kPiece;
}

bool GraphReserve::grow_to(std::uint64_t bytes) {
  if (bytes <= bytes_) return true;
  if (!driver_.memory.use(bytes - bytes_)) return false;
  bytes_ = bytes;
  high_ = std::max(high_, bytes_);
  return true;
}

bool GraphReserve::launch(std::uint64_t stream, const std::vector<Change>& changes) {
  Layout layout;
  for (const auto& [block, frees] : changes) frees ? layout.free(block) : layout.allocate(block);
  std::uint64_t outstanding = 0;
  for (const auto& [block, memory] : driver_.outstanding) outstanding += block->capacity;
  OnStream& on = streams_[stream];
  const std::uint64_t before = on.end.pending() ? on.bytes : 0, lasts = left();
  // Where that is too much for the device, launches on different streams follow each other, too, and pieces are small.
  if (!grow_to(lasts + std::max(before, layout.end) + running(stream)) &&
      !grow_to(lasts + std::max(before, layout.end)) && !grow_to(outstanding + layout.most))
    return false;
  ++launches_;
  std::set<std::uint64_t> kept;
  for (const auto& [range, block] : layout.taken) {
    block->launch = launches_;
    block->begin = range.begin;
    for (std::uint64_t piece = range.begin / kPiece; piece * kPiece < range.end; ++piece) kept.insert(piece);
  }
  on.bytes = std::max(before, layout.end - kept.size() * kPiece);
  return true;
}

void GraphReserve::trim() {
  const std::uint64_t needed = std::min(bytes_, left() + running());
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
