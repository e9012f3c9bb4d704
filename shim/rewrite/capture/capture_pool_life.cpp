// CapturePool: what becomes of the memory of captures that have ended.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "shim/rewrite/capture/capture_pool.h"
#include "shim/state/device_reader.h"
#include "shim/state/entry.h"

namespace nimble::shim {

void CapturePool::ended(std::uint64_t id, CUgraph graph, bool kept) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  if (found == captures_.end()) return;
  found->second.ended = true;
  found->second.graph = graph;
  if (kept) found->second.shared = true;
  let_go(id);
}

std::optional<CapturePool::Found> CapturePool::find(std::uint64_t address) const {
  if (!may_hold(address)) return std::nullopt;
  const auto holds = [&](const Chunk& chunk) { return address - chunk.base < chunk.size; };
  const std::lock_guard lock(mutex_);
  for (const auto& [id, capture] : captures_) {
    if (!holds(capture.block) && std::ranges::none_of(capture.chunks, holds)) continue;
    if (capture.asked_for) return std::nullopt;
    Found found;
    auto after = capture.live.upper_bound(address);
    if (!capture.launched || after == capture.live.begin()) return found;
    --after;
    found = {address - after->first < after->second, after->first, after->second, capture.home->context};
    return found;
  }
  const bool gone =
      std::ranges::any_of(spare_, [&](const Spare& one) { return holds(one.chunk); }) ||
      std::ranges::any_of(retired_, [&](const Retired& one) { return std::ranges::any_of(one.chunks, holds); });
  return gone ? std::optional(Found{}) : std::nullopt;
}

bool CapturePool::is_asked_for(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  return found != captures_.end() && found->second.asked_for;
}

void CapturePool::instantiated(CUgraph graph, CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    if (!capture.ended || capture.graph != graph) continue;
    capture.execs.insert(exec);
    waits_for_launch_.insert(exec);
    any_waits_.store(true, std::memory_order_release);
  }
}

// Launches from here on have every parameter from this graph. Those before may still run: what nobody else can use is
// retired, and so waits for them.
void CapturePool::updated(CUgraph graph, CUgraphExec exec) {
  {
    const std::lock_guard lock(mutex_);
    for (auto at = captures_.begin(); at != captures_.end();) {
      const std::uint64_t id = at->first;
      Capture& capture = (at++)->second;
      if (capture.ended && capture.graph == graph) continue;
      if (capture.execs.erase(exec)) let_go(id);
    }
  }
  instantiated(graph, exec);
}

// As the driver would lay out what the graph allocates, when a launch of it is through.
GraphHeap CapturePool::heap_of(const Capture& capture) {
  GraphHeap heap;
  for (const CaptureMemory::Event& event : capture.events)
    event.released ? heap.release(event.address) : heap.allocate(event.address, event.size);
  return heap;
}

void CapturePool::trim(CUcontext context, CUdevice device) {
  {
    const std::lock_guard lock(mutex_);
    tell_left({device, context});
  }
  reserve_.trim(device);
}

// Where its graphs run, if its memory is of `backing_`.
std::optional<GraphReserve::Place> CapturePool::place_of(const Capture& capture) const {
  if (!capture.home || capture.chunks.empty()) return std::nullopt;
  const std::optional<CUdevice> device = backing_.device(capture.chunks.front().base);
  return device ? std::optional(GraphReserve::Place{*device, capture.home->context}) : std::nullopt;
}

// What the program has of what launches have left.
void CapturePool::tell_left(GraphReserve::Place place) {
  std::uint64_t sum = 0;
  for (auto& [id, capture] : captures_) {
    if (!capture.launched || capture.live.empty() || place_of(capture) != place) continue;
    if (capture.counted != capture.live.size()) {
      GraphHeap heap = heap_of(capture);
      for (const auto& [address, size] : lasting(capture))
        if (!capture.live.contains(address)) heap.release(address);
      capture.left = heap.held();
      capture.counted = capture.live.size();
    }
    sum += capture.left;
  }
  reserve_.left(place, sum);
}

std::vector<std::uint64_t> CapturePool::launched(CUgraphExec exec, std::uint64_t stream) {
  if (!any_waits_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  const bool waited = waits_for_launch_.erase(exec) != 0;
  any_waits_.store(!waits_for_launch_.empty(), std::memory_order_release);
  if (!waited) return {};
  std::set<std::uint64_t> released;
  for (auto& [id, capture] : captures_) {
    if (!capture.execs.contains(exec)) continue;
    capture.launched = true;
    capture.live.merge(lasting(capture));
    if (const std::optional<GraphReserve::Place> place = place_of(capture)) {
      const GraphHeap heap = heap_of(capture);
      reserve_.launched(*place, stream, heap.bytes() - heap.held(), retirements());
      tell_left(*place);
    }
    // Of one that is a part of others nobody knows when it runs.
    if (!capture.shared) released.insert(capture.releases.begin(), capture.releases.end());
  }
  if (released.empty()) return {};
  waits_for_launch_.insert(exec);
  any_waits_.store(true, std::memory_order_release);
  std::vector<std::uint64_t> gone;
  for (const std::uint64_t address : released)
    if (released_behind_launch(address)) gone.push_back(address);
  return gone;
}

bool CapturePool::released_behind_launch(std::uint64_t address) {
  for (auto& [id, capture] : captures_) {
    if (capture.live.erase(address) == 0) continue;
    waits_for_launch_.insert(capture.execs.begin(), capture.execs.end());
    let_go(id);
    return true;
  }
  return false;
}

void CapturePool::destroyed(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    Capture& capture = (at++)->second;
    if (!capture.ended || capture.graph != graph) continue;
    capture.graph = nullptr;
    let_go(id);
  }
}

void CapturePool::destroyed(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  waits_for_launch_.erase(exec);
  for (auto at = captures_.begin(); at != captures_.end();) {
    const std::uint64_t id = at->first;
    if ((at++)->second.execs.erase(exec)) let_go(id);
  }
}

void CapturePool::shared(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_)
    if (capture.ended && capture.graph == graph) capture.shared = true;
}

void CapturePool::shared(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_)
    if (capture.execs.contains(exec)) capture.shared = true;
}

// What lies in pieces that the graph's own launches alone touch: nothing of it is there when they are through.
std::vector<TransientMemory::Shared> CapturePool::transient_of(CUgraphExec exec) {
  std::vector<TransientMemory::Shared> found;
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    if (!capture.execs.contains(exec) || capture.kept || capture.shared) continue;
    if (!capture.transient) {
      if (capture.asked_for || !capture.ended) continue;
      std::vector<Backing::Piece> pieces = released_pieces(capture);
      if (const auto place = place_of(capture); place && !pieces.empty()) {
        const GraphHeap heap = heap_of(capture);
        capture.transient = transient_.add(std::move(pieces), *place, heap.bytes() - heap.held());
      }
    }
    if (capture.transient) found.push_back(capture.transient);
  }
  return found;
}

std::vector<Backing::Piece> CapturePool::released_pieces(const Capture& capture) const {
  const std::map<std::uint64_t, std::uint64_t> lasts = lasting(capture);
  std::vector<Backing::Piece> pieces;
  for (const Chunk& chunk : capture.chunks)
    for (const Backing::Piece& piece : backing_.pieces(chunk.base, chunk.base + chunk.size)) {
      const auto behind = lasts.lower_bound(piece.address + piece.bytes);
      const bool lasts_none =
          behind == lasts.begin() || std::prev(behind)->first + std::prev(behind)->second <= piece.address;
      if (lasts_none) pieces.push_back(piece);
    }
  return pieces;
}

bool CapturePool::keep(CUgraph graph, CUgraphExec exec) {
  std::vector<TransientMemory::Shared> found;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, capture] : captures_) {
      if (!(graph && capture.ended && capture.graph == graph) && !(exec && capture.execs.contains(exec))) continue;
      capture.kept = true;
      if (capture.transient) found.push_back(capture.transient);
    }
  }
  bool good = true;
  for (const TransientMemory::Shared& part : found) good = transient_.keep(*part) && good;
  return good;
}

void CapturePool::context_ends(CUcontext context) {
  backing_.context_ends(context);
  transient_.context_ends(context);
  reserve_.context_ends(context);
  const auto ends = [&](const std::optional<Home>& home) { return !context || (home && home->context == context); };
  const std::lock_guard lock(mutex_);
  const auto forget = [&](const Chunk& chunk) {
    abandoned_.erase(abandoned_.lower_bound(chunk.base), abandoned_.lower_bound(chunk.base + chunk.size));
  };
  for (const auto& [id, capture] : captures_)
    if (ends(capture.home)) std::ranges::for_each(capture.chunks, forget);
  for (const Spare& one : spare_)
    if (ends(one.home)) forget(one.chunk);
  for (const Retired& one : retired_)
    if (ends(one.home)) std::ranges::for_each(one.chunks, forget);
  std::erase_if(captures_, [&](const auto& one) { return ends(one.second.home); });
  std::erase_if(retired_, [&](const Retired& one) { return ends(one.home); });
  std::erase_if(spare_, [&](const Spare& one) { return ends(one.home); });
}

bool CapturePool::is_abandoned(const Chunk& chunk) const {
  const auto first = abandoned_.lower_bound(chunk.base);
  return first != abandoned_.end() && *first - chunk.base < chunk.size;
}

// What no capture has goes back to the driver, once the program has released all that began there.
void CapturePool::released_abandoned(std::uint64_t address) {
  abandoned_.erase(address);
  for (auto at = spare_.begin(); at != spare_.end();) {
    if (address - at->chunk.base >= at->chunk.size || is_abandoned(at->chunk)) {
      ++at;
      continue;
    }
    retire({at->home, {at->chunk}, {}});
    at = spare_.erase(at);
  }
}

void CapturePool::retire(Retired retired) {
  if (retired.chunks.empty()) return;
  retired.number = retirements_.fetch_add(1, std::memory_order_relaxed);
  retired_.push_back(std::move(retired));
  any_retired_.store(true, std::memory_order_relaxed);
}

// Retires what the capture has, once nobody can use it any more.
void CapturePool::let_go(std::uint64_t id) {
  const auto found = captures_.find(id);
  Capture& capture = found->second;
  if (!capture.ended || capture.graph || capture.shared || !capture.execs.empty() ||
      (capture.launched && !capture.live.empty()))
    return;
  for (const auto& [address, size] : capture.live) abandoned_.insert(address);
  if (capture.block.base) {
    capture.chunks.push_back(capture.block);
    capture.slots.try_emplace(capture.block.base, capture.block.size);
  }
  Retired retired{capture.home.value_or(Home{}), {}, {}};
  for (const Chunk& chunk : capture.chunks) {
    // What the GPU may be at work in is waited for first.
    const bool spare = is_abandoned(chunk) && !capture.launched;
    if (spare) {
      spare_.push_back({retired.home, {chunk.base, chunk.size, 0}});
      any_spare_.store(true, std::memory_order_relaxed);
    } else {
      retired.chunks.push_back(chunk);
    }
    for (auto slot = capture.slots.lower_bound(chunk.base);
         slot != capture.slots.end() && slot->first - chunk.base < chunk.size; ++slot)
      if (spare) {
        spare_slots_.push_back({slot->first, slot->second, false});
      } else {
        retired.slots.insert(*slot);
      }
  }
  retire(std::move(retired));
  captures_.erase(found);
}

std::vector<CapturePool::Slot> CapturePool::reuse(const Going& going) {
  std::vector<Slot> slots;
  {
    const std::lock_guard lock(mutex_);
    for (Spare& one : spare_) one.told = true;
    any_spare_.store(false, std::memory_order_relaxed);
    slots = std::exchange(spare_slots_, {});
  }
  if (going && !slots.empty()) going(slots);
  const std::lock_guard lock(mutex_);
  for (Spare& one : spare_) one.ready = one.ready || one.told;
  return slots;
}

bool CapturePool::has_retired_in(CUcontext context) const {
  if (!has_retired()) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(retired_, [&](const Retired& one) { return one.home.context == context; });
}

std::vector<CapturePool::Slot> CapturePool::sweep(std::uint64_t first, const Going& going) {
  const CUcontext context = current_context();
  std::vector<Slot> slots;
  std::vector<Chunk> chunks;
  std::vector<Spare> spare;
  {
    const std::lock_guard lock(mutex_);
    const auto goes = [&](const Retired& one) { return one.home.context == context && one.number < first; };
    for (const Retired& one : retired_) {
      if (!goes(one)) continue;
      for (const auto& [address, size] : one.slots) slots.push_back({address, size, false});
      for (const Chunk& chunk : one.chunks) {
        if (is_abandoned(chunk)) {
          spare.push_back({one.home, {chunk.base, chunk.size, 0}, true});
        } else {
          chunks.push_back(chunk);
        }
      }
    }
    std::erase_if(retired_, goes);
    any_retired_.store(!retired_.empty(), std::memory_order_relaxed);
  }
  if (going && !slots.empty()) going(slots);
  {
    const std::lock_guard lock(mutex_);
    spare_.insert(spare_.end(), spare.begin(), spare.end());
  }
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context_.driver_symbol("cuMemFree_v2"));
  const RelaxedCaptures relaxed(context_);
  for (const Chunk& chunk : chunks)
    if (!backing_.release(chunk.base) && free) free(chunk.base);
  return slots;
}

}  // namespace nimble::shim
