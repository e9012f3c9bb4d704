#include "shim/rewrite/capture/capture_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "nimble/internal/process/not_cancelled.h"
#include "shim/state/device_reader.h"
#include "shim/state/entry.h"

namespace nimble::shim {

namespace {

constexpr std::chrono::microseconds kPatience{1'000'000};  // for memory of a pool
// As pools of the driver align; and what is asked of the driver at a time, at least.
constexpr std::uint64_t kAlignment = 512, kChunk = std::uint64_t{8} << 20;

// Slots have one of eight sizes between a power of two and the next, so that most allocations find one that fits.
std::uint64_t slot_size(std::uint64_t size) {
  const std::uint64_t step = std::max(std::bit_floor(size) / 8, kAlignment);
  return (size + step - 1) / step * step;
}

}  // namespace

void CapturePool::began(std::uint64_t id, Serve serve, std::shared_ptr<const CapturePlan> plan) {
  const std::lock_guard lock(mutex_);
  Capture& capture = captures_[id];
  capture.asked_for = true;
  capture.serve = serve;
  capture.plan = std::move(plan);
}

// If the driver can, so much of what graphs may share.
CapturePool::Chunk CapturePool::ask_driver(Home home, std::uint64_t bytes, std::uint64_t to_share) {
  CUcontext context = home.context;
  const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  const bool other = context != current_context();
  if (!get || (other && (!push || !pop || push(context) != CUDA_SUCCESS))) return {};
  Chunk chunk;
  if (home.pool == 0 && to_share != 0) {
    const Backing::Piece mapped = backing_.get(to_share, home.context);
    chunk = {mapped.address, mapped.bytes, 0};
  }
  CUdeviceptr base = 0;
  if (chunk.base == 0) {
    const RelaxedCaptures relaxed(context_);
    if ((home.pool != 0 ? ask_pool(base, bytes) : get(&base, bytes)) != CUDA_SUCCESS) base = 0;
    chunk = {base, base ? bytes : 0, 0};
  }
  if (other) pop(&context);
  return chunk;
}

// In stream order, on a stream of its own, and there once this returns. cuMemFree takes such memory, too. The pool may
// give what another stream still has to release: that is waited for, but not for good, since that stream may wait for
// this thread.
CUresult CapturePool::ask_pool(CUdeviceptr& base, std::uint64_t bytes) const {
  const auto find = [&]<class Function>(Function* function, const char* name) {
    return reinterpret_cast<Function*>(context_.driver_symbol(name));
  };
  const auto create = find(&::cuStreamCreate, "cuStreamCreate");
  const auto destroy = find(&::cuStreamDestroy_v2, "cuStreamDestroy_v2");
  const auto query = find(&::cuStreamQuery, "cuStreamQuery");
  const auto get = find(&::cuMemAllocAsync, "cuMemAllocAsync");
  const auto free = find(&::cuMemFreeAsync, "cuMemFreeAsync");
  if (!create || !destroy || !query || !get || !free) return CUDA_ERROR_NOT_SUPPORTED;
  CUstream stream = nullptr;
  CUresult result = create(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = get(&base, bytes, stream);
  if (result == CUDA_SUCCESS) {
    const NotCancelled not_cancelled;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while ((result = query(stream)) == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(kPatience / 10'000);
    if (result != CUDA_SUCCESS) free(base, stream);
  }
  destroy(stream);
  return result;
}

// The one that was released last, of this size or somewhat larger.
std::optional<CapturePool::Slot> CapturePool::use_again(Capture& capture, std::uint64_t stream, std::uint64_t size) {
  for (auto at = capture.released.lower_bound({stream, size});
       at != capture.released.end() && at->first.stream == stream && at->first.size <= 2 * size; ++at) {
    if (at->second.empty()) continue;
    const Slot slot{at->second.back(), at->first.size, true};
    at->second.pop_back();
    return slot;
  }
  return std::nullopt;
}

// Its place by the plan, whose block is there. Once an allocation is not as planned, none is any more.
std::optional<CapturePool::Slot> CapturePool::planned(Capture& capture, std::uint64_t stream, std::uint64_t size) {
  const std::vector<CapturePlan::Allocation>& all = capture.plan->allocations;
  const std::size_t index = capture.allocations;
  capture.kept_to_plan = capture.kept_to_plan && index < all.size() && all[index].size == size;
  if (!capture.kept_to_plan || !all[index].offset) return std::nullopt;
  if (capture.stream == 0) capture.stream = stream;
  const std::uint64_t address = capture.block.base + *all[index].offset;
  // What the program has there still it releases later than it did the first time.
  auto behind = capture.live.lower_bound(address);
  const bool meets = (behind != capture.live.end() && behind->first < address + size) ||
                     (behind != capture.live.begin() && std::prev(behind)->first + std::prev(behind)->second > address);
  capture.kept_to_plan = capture.stream == stream && !meets;
  if (!capture.kept_to_plan) return std::nullopt;
  std::uint64_t& known = capture.slots[address];
  const Slot slot{address, size, known != 0};
  known = std::max(known, size);
  return slot;
}

// Where the next slot begins: not where the program may release what never was there.
std::optional<std::uint64_t> CapturePool::place_in(const Chunk& chunk, std::uint64_t size) const {
  std::uint64_t at = chunk.used;
  while (abandoned_.contains(chunk.base + at)) at += kAlignment;
  return at <= chunk.size && chunk.size - at >= size ? std::optional(at) : std::nullopt;
}

std::optional<CapturePool::Slot> CapturePool::take(Capture& capture, std::uint64_t size) {
  for (Chunk& chunk : capture.chunks) {
    const std::optional<std::uint64_t> at = place_in(chunk, size);
    if (!at) continue;
    chunk.used = *at + size;
    capture.slots[chunk.base + *at] = size;
    return Slot{chunk.base + *at, size, false};
  }
  return std::nullopt;
}

bool CapturePool::take_spare(Capture& capture, std::uint64_t size) {
  const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const Spare& spare) {
    return spare.ready && spare.home == capture.home && place_in(spare.chunk, size);
  });
  if (found == spare_.end()) return false;
  capture.chunks.push_back(found->chunk);
  spare_.erase(found);
  return true;
}

std::optional<CapturePool::Slot> CapturePool::allocate(std::uint64_t id, Home home, std::uint64_t stream,
                                                       std::size_t nodes, std::uint64_t asked) {
  if (asked == 0 || asked > std::uint64_t{1} << 62) return std::nullopt;
  const std::uint64_t size = slot_size(asked);
  std::unique_lock lock(mutex_);
  Capture& capture = captures_[id];
  // Without the lock; false where the capture has gone meanwhile, with its context.
  Chunk got;
  const auto ask = [&](std::uint64_t bytes) {
    // What nobody has asked for. A small graph is to need little, and few calls; a large one few calls for much.
    const std::uint64_t so_far = std::clamp(size_of(capture.chunks), Mapping::kGrain, kChunk);
    const std::uint64_t to_share = capture.asked_for ? 0 : std::max(size, so_far);
    lock.unlock();
    got = ask_driver(home, bytes, to_share);
    lock.lock();
    if (got.base) widen(got);
    return captures_.contains(id);
  };
  if (capture.bound == 0) return std::nullopt;
  if (!capture.home) capture.home = home;
  if (capture.home != home) {
    capture.kept_to_plan = false;
    return std::nullopt;
  }
  if (capture.plan && capture.kept_to_plan && !capture.block.base && capture.plan->bytes != 0) {
    if (!ask(capture.plan->bytes)) return std::nullopt;
    // Another thread of the same capture may have been here meanwhile.
    if (capture.block.base && got.base) capture.chunks.push_back(got);
    if (!capture.block.base) capture.block = {got.base, capture.plan->bytes, capture.plan->bytes};
    capture.kept_to_plan = capture.kept_to_plan && capture.block.base;
  }
  std::optional<Slot> slot;
  if (capture.plan) slot = planned(capture, stream, asked);
  if (!slot && capture.serve == Serve::again) slot = use_again(capture, stream, size);
  if (!slot) slot = take(capture, size);
  if (!slot && take_spare(capture, size)) slot = take(capture, size);
  // Where memory is short, as much as is needed.
  for (const std::uint64_t bytes : {std::max(size, kChunk), size}) {
    if (slot) break;
    if (capture.bound && bytes > *capture.bound - std::min(*capture.bound, size_of(capture.chunks))) continue;
    if (!ask(bytes)) return std::nullopt;
    if (got.base) capture.chunks.push_back(got);
    slot = take(capture, size);
  }
  ++capture.allocations;
  if (!slot) {
    capture.kept_to_plan = false;
    return std::nullopt;
  }
  capture.live[slot->address] = asked;
  capture.events.push_back({nodes, false, slot->address, asked});
  return slot;
}

std::optional<std::uint64_t> CapturePool::held_by_others(std::uint64_t id, CUcontext context) const {
  const std::lock_guard lock(mutex_);
  if (const auto own = captures_.find(id); own != captures_.end()) {
    const Capture& capture = own->second;
    if (capture.asked_for || capture.home || capture.bound) return std::nullopt;
  }
  std::uint64_t held = 0;
  for (const auto& [other, capture] : captures_) {
    if (capture.home && capture.home->context == context) held += size_of(capture.chunks) + capture.block.size;
  }
  for (const Retired& one : retired_)
    if (one.home.context == context) held += size_of(one.chunks);
  return held;
}

std::uint64_t CapturePool::held(CUcontext context) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t held = 0;
  for (const auto& [id, capture] : captures_)
    if (capture.home && capture.home->context == context)
      held += size_of(capture.chunks) + (capture.block.base ? size_of({capture.block}) : 0);
  for (const Retired& one : retired_)
    if (one.home.context == context) held += size_of(one.chunks);
  for (const Spare& one : spare_)
    if (one.home.context == context) held += size_of({one.chunk});
  return held;
}

void CapturePool::bound(std::uint64_t id, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  captures_[id].bound = bytes;
}

std::uint64_t CapturePool::size_of(const std::vector<Chunk>& chunks) const {
  std::uint64_t sum = 0;
  for (const Chunk& chunk : chunks) sum += backing_.held(chunk.base).value_or(chunk.size);
  return sum;
}

bool CapturePool::serves_apart(std::uint64_t id, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  if (found == captures_.end() || found->second.serve == Serve::again) return false;
  const Capture& capture = found->second;
  if (!capture.plan) return true;
  const std::vector<CapturePlan::Allocation>& all = capture.plan->allocations;
  return capture.kept_to_plan && capture.allocations < all.size() && all[capture.allocations].size == bytes;
}

std::optional<CUresult> CapturePool::refusal(std::uint64_t id, Home home) const {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  if (found == captures_.end() || !found->second.asked_for) return std::nullopt;
  return found->second.home == home ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
}

// Before anybody can name what lies in it. With the lock.
void CapturePool::widen(const Chunk& chunk) {
  begin_.store(std::min(begin_.load(std::memory_order_relaxed), chunk.base), std::memory_order_relaxed);
  end_.store(std::max(end_.load(std::memory_order_relaxed), chunk.base + chunk.size), std::memory_order_relaxed);
}

bool CapturePool::may_hold(std::uint64_t address) const {
  return address >= begin_.load(std::memory_order_relaxed) && address < end_.load(std::memory_order_relaxed);
}

bool CapturePool::holds(std::uint64_t address) const {
  if (!may_hold(address)) return false;
  const std::lock_guard lock(mutex_);
  return abandoned_.contains(address) ||
         std::ranges::any_of(captures_, [&](const auto& one) { return one.second.slots.contains(address); }) ||
         std::ranges::any_of(retired_, [&](const Retired& one) { return one.slots.contains(address); });
}

CapturePool::Release CapturePool::release(std::uint64_t address, std::uint64_t stream, std::uint64_t capturing,
                                          std::optional<std::size_t> nodes) {
  const std::lock_guard lock(mutex_);
  if (abandoned_.contains(address)) {
    released_abandoned(address);
    return Release::done;
  }
  for (auto& [id, capture] : captures_) {
    if (!capture.slots.contains(address)) continue;
    const auto found = capture.live.find(address);
    if (found == capture.live.end()) return Release::nothing_there;
    if (nodes && (capture.ended || id != capturing)) {
      captures_[capturing].releases.insert(address);
      return Release::done;
    }
    if (nodes) {
      capture.events.push_back({*nodes, true, address, found->second});
      if (capture.serve == Serve::again) capture.released[{stream, capture.slots[address]}].push_back(address);
      // What comes into its place would not be behind this.
      if (capture.plan && stream != capture.stream) capture.kept_to_plan = false;
    } else {
      waits_for_launch_.insert(capture.execs.begin(), capture.execs.end());
      any_waits_.store(!waits_for_launch_.empty(), std::memory_order_release);
    }
    capture.live.erase(found);
    let_go(id);
    return Release::done;
  }
  const bool retired = std::ranges::any_of(retired_, [&](const Retired& one) { return one.slots.contains(address); });
  return retired ? Release::nothing_there : Release::foreign;
}

bool CapturePool::released_by_graph(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    if (!capture.slots.contains(address)) continue;
    capture.shared = true;
    return true;
  }
  return false;
}

void CapturePool::unordered(std::uint64_t id, std::uint64_t stream) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(id);
  if (found == captures_.end()) return;
  std::erase_if(found->second.released, [&](const auto& one) { return one.first.stream == stream; });
  found->second.kept_to_plan = false;
}

void CapturePool::stream_ended(std::uint64_t stream) {
  reserve_.waited_for_stream(stream, ~std::uint64_t{0});
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : captures_) {
    if (capture.ended) continue;
    std::erase_if(capture.released, [&](const auto& one) { return one.first.stream == stream; });
    if (stream != 0 && capture.stream == stream) capture.kept_to_plan = false;  // 0: it has none yet
  }
}

CaptureMemory::Kind CapturePool::kind_of(const Capture& capture) {
  using Kind = CaptureMemory::Kind;
  if (capture.serve == Serve::again) return Kind::again;
  if (capture.serve == Serve::once) return Kind::once;
  const bool whole = capture.kept_to_plan && capture.allocations == capture.plan->allocations.size();
  std::set<std::uint64_t> there;
  for (const CaptureMemory::Event& event : capture.events)
    event.released ? void(there.erase(event.address)) : void(there.insert(event.address));
  const auto in_block = [&](std::uint64_t address) { return address - capture.block.base < capture.block.size; };
  return whole && std::none_of(there.begin(), there.end(), in_block) ? Kind::once : Kind::broken;
}

// What was not released in the capture itself, by address: as asked for.
std::map<std::uint64_t, std::uint64_t> CapturePool::lasting(const Capture& capture) {
  std::map<std::uint64_t, std::uint64_t> there;
  for (const CaptureMemory::Event& event : capture.events)
    event.released ? void(there.erase(event.address)) : void(there[event.address] = event.size);
  return there;
}

std::optional<CaptureMemory> CapturePool::memory_of(CUgraph graph) const {
  const std::lock_guard lock(mutex_);
  std::optional<CaptureMemory> result;
  for (const auto& [id, capture] : captures_) {
    if (!capture.ended || capture.graph != graph || capture.events.empty()) continue;
    if (result) {
      result->kind = CaptureMemory::Kind::broken;
    } else {
      result.emplace().kind = kind_of(capture);
    }
    result->events.insert(result->events.end(), capture.events.begin(), capture.events.end());
    for (const auto& [address, size] : lasting(capture)) result->lasting.push_back(address);
    if (capture.block.base) result->blocks.push_back({capture.block.base, capture.block.size});
  }
  if (result) std::ranges::sort(result->lasting);
  return result;
}

}  // namespace nimble::shim
