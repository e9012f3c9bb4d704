#include "shim/rewrite/allocate/capture_allocator.h"

#include <string>

#include "shim/state/contexts.h"
#include "shim/state/default_pool.h"
#include "shim/state/device_reader.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

using Capturing = CapturesUnderWay::Capturing;

namespace {

// Whether the allocation reaches over the range that a handle is asked for, rounded up to what memory is mapped in, and
// that is not less: of a graph's memory the driver gives no handle for 64 KiB, and one for 3 MiB (H200, driver
// 580.159).
bool covers(const CapturePool::Found& allocation, const Call& call) {
  constexpr std::uint64_t kMapping = std::uint64_t{2} << 20;
  const std::uint64_t left = allocation.address + allocation.size - call.memory.address;
  return call.memory.size >= kMapping && call.memory.size <= (left + kMapping - 1) / kMapping * kMapping;
}

}  // namespace

// ---- allocations ----

Answer CaptureAllocator::allocate(Call& call) {
  if (call.memory.names_pool) return std::nullopt;
  const std::optional<Capturing> capture = uses_.captures.of(call);
  if (!capture || !capture->active) return std::nullopt;
  if (asked_of_graphs_.load(std::memory_order_relaxed) && !uses_.pool.is_asked_for(capture->id)) return std::nullopt;
  // The driver allocates in the stream's context, whichever is current.
  CUcontext const context = streams().context(call.stream);
  if (!context) return uses_.pool.refusal(capture->id, {});
  const CaptureHome home{context, default_pool_changes()};
  if (uses_.shortage.leaves_to_driver(capture->id, home)) return std::nullopt;
  const std::optional<MemorySlot> slot = take(call, *capture, home);
  if (!slot) {
    const Answer refusal = call.memory.size != 0 ? uses_.pool.refusal(capture->id, home) : std::nullopt;
    if (refusal)
      uses_.log.say("no memory for a capture's allocation of " + std::to_string(call.memory.size) + " bytes: " +
                    (*refusal == CUDA_ERROR_OUT_OF_MEMORY
                         ? "the driver has none"
                         : "its other memory is another device's, or the pool was changed meanwhile"));
    return refusal;
  }
  call.memory.address = slot->address;
  try {
    uses_.memory.came_in_capture(call);
    uses_.graphs.tell(call);  // others
  } catch (const std::exception& error) {
    uses_.log.failed(call, error);
  }
  return CUDA_SUCCESS;
}

// If there is none, retries each time that something else has released memory.
std::optional<MemorySlot> CaptureAllocator::take(const Call& call, const Capturing& capture, CaptureHome home) {
  const auto try_once = [&] {
    return uses_.pool.allocate(capture.id, home, call.stream.key, uses_.captures.count_nodes(capture.graph),
                               call.memory.size);
  };
  std::optional<MemorySlot> slot = try_once();
  if (!slot && call.memory.size != 0 && uses_.shortage.give_back_transient(home.context) != 0) slot = try_once();
  if (!slot && call.memory.size != 0 && uses_.pool.refusal(capture.id, home) == CUDA_ERROR_OUT_OF_MEMORY &&
      uses_.graphs.give_back())
    slot = try_once();
  return slot;
}

// ---- releases ----

Answer CaptureAllocator::release(const Call& call) {
  if (ends_registration(call))
    if (const std::optional<CapturePool::Found> found = uses_.pool.find(call.memory.address); found && !found->there)
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (!uses_.pool.holds(call.memory.address)) {
    uses_.memory.goes(call);
    return std::nullopt;
  }
  // The driver refuses other releases, but for what is mapped: that is not the program's mapping.
  if (!releases_allocation(call))
    return call.memory.kind == MemoryKind::mapped ? Answer(CUDA_ERROR_INVALID_VALUE) : std::nullopt;
  try {
    return release_of_pool(call);
  } catch (const std::exception& error) {  // the driver does not know the memory
    uses_.log.failed(call, error);
  }
  return CUDA_SUCCESS;
}

// Where the release is captured it would be done when the graph runs: nothing is, here and there. In a capture that is
// spoilt the driver would refuse it, which frameworks do not expect of memory that they let go because of that.
Answer CaptureAllocator::release_of_pool(const Call& call) {
  if (call.kind == CallKind::free)
    if (const CUresult result = wait_as_release_does(); result != CUDA_SUCCESS) return result;
  std::optional<Capturing> capture;
  if (call.has_stream && uses_.captures.any()) capture = uses_.captures.of(call);
  if (capture && !capture->active) capture.reset();
  std::optional<std::size_t> nodes;
  if (capture) nodes = uses_.captures.count_nodes(capture->graph);
  switch (uses_.pool.release(call.memory.address, call.stream.key, capture ? capture->id : 0, nodes)) {
    case CapturePool::Release::foreign:
      return std::nullopt;
    case CapturePool::Release::nothing_there:
      return CUDA_ERROR_INVALID_VALUE;
    case CapturePool::Release::done:
      if (!capture) answers_.gone(call.memory.address);
      break;
  }
  return CUDA_SUCCESS;
}

// Behaves as cuMemFree, which waits for the GPU, or is refused during captures: by such a call on Nimble's memory.
CUresult CaptureAllocator::wait_as_release_does() const {
  CallContext& context = uses_.context;
  const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context.driver_symbol("cuMemAlloc_v2"));
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context.driver_symbol("cuMemFree_v2"));
  const auto wait = reinterpret_cast<decltype(&::cuCtxSynchronize)>(context.driver_symbol("cuCtxSynchronize"));
  const auto ours = [&](auto call) {
    const RelaxedCaptures relaxed(context);
    return call();
  };
  CUdeviceptr piece = 0;
  if (!get || !free || ours([&] { return get(&piece, 1); }) != CUDA_SUCCESS) return wait ? wait() : CUDA_SUCCESS;
  const CUresult result = free(piece);
  if (result != CUDA_SUCCESS) ours([&] { return free(piece); });
  return result;
}

// A node that releases what is no allocation to the driver becomes an empty one.
Answer CaptureAllocator::add_release(const Call& call) {
  CallContext& context = uses_.context;
  const auto add = reinterpret_cast<decltype(&::cuGraphAddEmptyNode)>(context.driver_symbol("cuGraphAddEmptyNode"));
  const auto add_any = reinterpret_cast<decltype(&::cuGraphAddNode_v2)>(context.driver_symbol("cuGraphAddNode_v2"));
  if (!uses_.pool.released_by_graph(call.memory.address)) return std::nullopt;
  auto* const out = static_cast<CUgraphNode*>(const_cast<void*>(call.arguments[0]));
  const auto* const dependencies = static_cast<const CUgraphNode*>(call.arguments[1]);
  const auto* const edges = static_cast<const CUgraphEdgeData*>(call.arguments[2]);
  const auto count = reinterpret_cast<std::size_t>(call.arguments[3]);
  if (!edges) return add ? add(out, call.graph.handle, dependencies, count) : CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  return add_any ? add_any(out, call.graph.handle, dependencies, edges, count, &params) : CUDA_ERROR_NOT_SUPPORTED;
}

// The next memory at those addresses is another allocation.
void CaptureAllocator::launched(const Call& call) {
  for (const std::uint64_t address : uses_.pool.graphs().launched(call.graph.exec, call.stream.key))
    answers_.gone(address);
}

void CaptureAllocator::gone(const std::vector<MemorySlot>& slots) {
  uses_.recordings.gone(slots);
  for (const MemorySlot& slot : slots) {
    answers_.gone(slot.address);
    Call release;
    release.kind = CallKind::free;
    release.memory.address = slot.address;
    release.memory.size = slot.size;
    uses_.graphs.tell(release);
  }
}

// ---- questions ----

Answer CaptureAllocator::answer(Call& call) {
  switch (call.asked.question) {
    case Question::graph_memory:
      // The allocation nodes that the driver would have made.
      if ((!call.graph.handle || uses_.pool.memory_of(call.graph.handle)) &&
          !asked_of_graphs_.exchange(true, std::memory_order_relaxed))
        uses_.log.say(
            "the program asks about its graphs' memory: from now on the driver serves what it allocates in captures");
      return std::nullopt;
    case Question::free_memory: {
      const std::optional<std::uint64_t> free = uses_.shortage.free_memory().told();
      if (!free) return std::nullopt;
      call.memory.size = *free;
      return CUDA_SUCCESS;
    }
    case Question::trim:
      if (CUcontext const context = current_context(); context && uses_.functions.load()) {
        uses_.shortage.give_back_transient(context);
        uses_.shortage.free_memory().trim(context);
      }
      return std::nullopt;
    case Question::memory:
    case Question::handle:
    case Question::physical:
      return answer_about_memory(call);
    default:
      return std::nullopt;
  }
}

// As the driver would of a graph's own memory: it is there from the graph's launch to its release, and no handle is
// given of it but for a range of some size.
Answer CaptureAllocator::answer_about_memory(Call& call) {
  const std::optional<CapturePool::Found> found = uses_.pool.find(call.memory.address);
  if (!found || !uses_.functions.load()) return std::nullopt;
  if (call.asked.question == Question::handle && found->there && covers(*found, call)) return std::nullopt;
  if (call.asked.question != Question::memory) return CUDA_ERROR_INVALID_VALUE;
  if (!found->there) return CUDA_ERROR_NOT_FOUND;
  call.memory.address = found->address;
  call.memory.size = found->size;
  call.asked.of_capture = true;
  answers_.answer(call, found->address, uses_.functions.driver(), found->context);
  if (call.asked.sets && call.shown) uses_.graphs.tell(call);  // after() does not run
  return CUDA_SUCCESS;
}

void CaptureAllocator::copied(const Call& call) {
  if (!call.synchronous() || !answers_.any_synchronous()) return;
  for (const std::uint64_t address : {call.transfer.dst.address, call.transfer.src.address}) {
    const std::optional<CapturePool::Found> found = uses_.pool.find(address);
    if (!found || !found->there || !answers_.is_synchronous(found->address) || !uses_.functions.load()) continue;
    uses_.functions.driver().cuStreamSynchronize_(call.stream.handle);
    return;
  }
}

}  // namespace nimble::shim
