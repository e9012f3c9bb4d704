#include "shim/rewrite/pool/capture_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>
#include <vector>

namespace nimble::shim {

namespace {

constexpr std::uint64_t kChunk = std::uint64_t{8} << 20;  // the least to request of the driver at a time

// Slots have one of eight sizes between successive powers of two, so that most allocations find one that fits.
std::uint64_t slot_size(std::uint64_t size) {
  const std::uint64_t step = std::max(std::bit_floor(size) / 8, FormerMemory::kAlignment);
  return (size + step - 1) / step * step;
}

}  // namespace

void CapturePool::began(std::uint64_t id, Serve serve, std::shared_ptr<const CapturePlan> plan) {
  const auto lock = table_.lock();
  table_.captures()[id].slots.ask_for(serve, std::move(plan));
}

bool CapturePool::is_asked_for(std::uint64_t id) const {
  const auto lock = table_.lock();
  const PooledCapture* const capture = table_.find(id);
  return capture && capture->slots.is_asked_for();
}

std::optional<std::uint64_t> CapturePool::held_by_others(std::uint64_t id, CUcontext context) const {
  const auto lock = table_.lock();
  if (const PooledCapture* const own = table_.find(id))
    if (own->slots.is_asked_for() || own->slots.home() || own->slots.bound()) return std::nullopt;
  std::uint64_t held = table_.former().retired_bytes(context);
  for (const auto& [other, capture] : table_.captures()) {
    const CaptureSlots& slots = capture.slots;
    if (slots.home() && slots.home()->context == context)
      held += table_.source().held(slots.chunks()) + slots.block().size;
  }
  return held;
}

std::uint64_t CapturePool::held(CUcontext context) const {
  const auto lock = table_.lock();
  std::uint64_t held = table_.former().held(context);
  for (const auto& [id, capture] : table_.captures()) {
    const CaptureSlots& slots = capture.slots;
    if (!slots.home() || slots.home()->context != context) continue;
    held += table_.source().held(slots.chunks());
    if (slots.block().base) held += table_.source().held({&slots.block(), 1});
  }
  return held;
}

void CapturePool::bound(std::uint64_t id, std::uint64_t bytes) {
  const auto lock = table_.lock();
  table_.captures()[id].slots.bound(bytes);
}

void CapturePool::unordered(std::uint64_t id, std::uint64_t stream) {
  const auto lock = table_.lock();
  if (PooledCapture* const capture = table_.find(id)) capture->slots.unordered(stream);
}

void CapturePool::stream_ended(std::uint64_t stream) {
  graphs_.reserve().waited_for_stream(stream, ~std::uint64_t{0});
  const auto lock = table_.lock();
  for (auto& [id, capture] : table_.captures())
    if (!capture.graph.ended) capture.slots.stream_ended(stream);
}

std::optional<CaptureMemory> CapturePool::memory_of(CUgraph graph) const {
  const auto lock = table_.lock();
  std::optional<CaptureMemory> result;
  for (const auto& [id, capture] : table_.captures()) {
    if (!capture.graph.is(graph) || !capture.slots.has_events()) continue;
    if (result) {
      result->kind = CaptureMemory::Kind::broken;
    } else {
      result.emplace().kind = capture.slots.kind();
    }
    capture.slots.tell(*result);
  }
  if (result) std::ranges::sort(result->lasting);
  return result;
}

void CapturePool::context_ends(CUcontext context) {
  table_.source().backing().context_ends(context);
  graphs_.context_ends(context);
  const auto ends = [&](const PooledCapture& capture) {
    const std::optional<CaptureHome>& home = capture.slots.home();
    return !context || (home && home->context == context);
  };
  std::vector<MemoryChunk> chunks;
  const auto lock = table_.lock();
  for (const auto& [id, capture] : table_.captures())
    if (ends(capture)) chunks.insert(chunks.end(), capture.slots.chunks().begin(), capture.slots.chunks().end());
  table_.former().context_ends(context, chunks);
  std::erase_if(table_.captures(), [&](const auto& one) { return ends(one.second); });
}

std::optional<MemorySlot> CapturePool::allocate(std::uint64_t id, CaptureHome home, std::uint64_t stream,
                                                std::size_t nodes, std::uint64_t asked) {
  if (asked == 0 || asked > std::uint64_t{1} << 62) return std::nullopt;
  const std::uint64_t size = slot_size(asked);
  FormerMemory& former = table_.former();
  auto lock = table_.lock();
  CaptureSlots& slots = table_.captures()[id].slots;
  // Without the lock; false if the capture has gone meanwhile, with its context.
  MemoryChunk got;
  const auto ask = [&](std::uint64_t bytes) {
    // Requests ahead of need: a small graph should need little memory and few calls, a large one few calls for much.
    const std::uint64_t so_far = std::clamp(table_.source().held(slots.chunks()), Mapping::kGrain, kChunk);
    const std::uint64_t to_share = slots.is_asked_for() ? 0 : std::max(size, so_far);
    lock.unlock();
    got = table_.source().get(home, bytes, to_share);
    lock.lock();
    return table_.find(id) != nullptr;
  };
  if (slots.bound() == 0 || !slots.lies_in(home)) return std::nullopt;
  if (const std::optional<std::uint64_t> block = slots.lacks_block()) {
    if (!ask(*block)) return std::nullopt;
    slots.add_block(got);
  }
  std::optional<MemorySlot> slot = slots.use_again(stream, size, asked);
  if (!slot) slot = slots.take(size, former);
  if (!slot)
    if (const std::optional<MemoryChunk> spare = former.take_spare(home, size)) {
      slots.add(*spare);
      slot = slots.take(size, former);
    }
  // If memory is short, only as much as is needed.
  for (const std::uint64_t bytes : {std::max(size, kChunk), size}) {
    if (slot) break;
    const std::optional<std::uint64_t> bound = slots.bound();
    if (bound && bytes > *bound - std::min(*bound, table_.source().held(slots.chunks()))) continue;
    if (!ask(bytes)) return std::nullopt;
    if (got.base) slots.add(got);
    slot = slots.take(size, former);
  }
  slots.allocated(slot, nodes, asked);
  return slot;
}

bool CapturePool::serves_apart(std::uint64_t id, std::uint64_t bytes) const {
  const auto lock = table_.lock();
  const PooledCapture* const capture = table_.find(id);
  return capture && capture->slots.serves_apart(bytes);
}

Answer CapturePool::refusal(std::uint64_t id, CaptureHome home) const {
  const auto lock = table_.lock();
  const PooledCapture* const capture = table_.find(id);
  if (!capture || !capture->slots.is_asked_for()) return std::nullopt;
  return capture->slots.home() == home ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
}

CapturePool::Release CapturePool::release(std::uint64_t address, std::uint64_t stream, std::uint64_t capturing,
                                          std::optional<std::size_t> nodes) {
  const auto lock = table_.lock();
  if (table_.former().release_abandoned(address)) return Release::done;
  for (auto& [id, capture] : table_.captures()) {
    if (!capture.slots.has_slot(address)) continue;
    if (!capture.slots.live().contains(address)) return Release::nothing_there;
    if (nodes && (capture.graph.ended || id != capturing)) {
      table_.captures()[capturing].graph.releases.insert(address);
      return Release::done;
    }
    if (!nodes) table_.await_launch(capture.graph.execs);
    capture.slots.release(address, stream, nodes);
    table_.let_go(id);
    return Release::done;
  }
  return table_.former().has_retired_at(address) ? Release::nothing_there : Release::foreign;
}

bool CapturePool::released_by_graph(std::uint64_t address) {
  const auto lock = table_.lock();
  for (auto& [id, capture] : table_.captures()) {
    if (!capture.slots.has_slot(address)) continue;
    capture.graph.shared = true;
    return true;
  }
  return false;
}

std::optional<CapturePool::Found> CapturePool::find(std::uint64_t address) const {
  if (!table_.source().may_hold(address)) return std::nullopt;
  const auto lock = table_.lock();
  for (const auto& [id, capture] : table_.captures()) {
    const CaptureSlots& slots = capture.slots;
    if (!slots.holds(address)) continue;
    if (slots.is_asked_for()) return std::nullopt;
    Found found;
    auto after = slots.live().upper_bound(address);
    if (!capture.graph.launched || after == slots.live().begin()) return found;
    --after;
    found = {address - after->first < after->second, after->first, after->second, slots.home()->context};
    return found;
  }
  return table_.former().holds(address) ? std::optional(Found{}) : std::nullopt;
}

bool CapturePool::holds(std::uint64_t address) const {
  if (!table_.source().may_hold(address)) return false;
  const auto lock = table_.lock();
  return table_.former().begins_at(address) ||
         std::ranges::any_of(table_.captures(), [&](const auto& one) { return one.second.slots.has_slot(address); });
}

}  // namespace nimble::shim
