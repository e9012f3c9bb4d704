#include "shim/rewrite/allocate/workspace_slots.h"

#include <optional>

#include "shim/state/stream_ref.h"

namespace nimble::shim {

namespace {

Call release_of(std::uint64_t slot, const StreamRef& stream) {
  Call call;
  call.symbol = "cuMemFreeAsync";
  call.kind = CallKind::free_async;
  call.stream = stream;
  call.has_stream = true;
  call.memory.address = slot;
  return call;
}

}  // namespace

std::uint64_t WorkspaceSlots::slot_for(CUstream stream, std::uint64_t workspace, std::uint64_t bytes,
                                       bool for_one) noexcept try {
  const bool may_capture =
      reinterpret_cast<std::uintptr_t>(stream) > reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD);
  if (!may_capture || workspace == 0 || bytes == 0) return workspace;
  return take(stream, workspace, bytes, for_one);
} catch (const std::exception& error) {
  Call call;
  call.symbol = "cuBLAS's workspace";
  log_.failed(call, error);
  return workspace;
}

std::uint64_t WorkspaceSlots::take(CUstream stream, std::uint64_t workspace, std::uint64_t bytes, bool for_one) {
  const std::optional<CapturesUnderWay::Capturing> capture = captures_.of(stream);
  if (!capture || !capture->active) return workspace;
  const std::size_t nodes = captures_.count_nodes(capture->graph);
  if (const auto given = workspaces_.given(capture->id, workspace, bytes, nodes, for_one)) return *given;
  Call call;
  call.symbol = "cuMemAllocAsync";
  call.kind = CallKind::alloc_async;
  call.memory.kind = MemoryKind::stream_ordered;
  call.stream = stream_ref(DefaultStream::legacy, stream);
  call.has_stream = true;
  call.memory.size = bytes;
  if (const auto last = workspaces_.end_one(capture->id, workspace, for_one))
    allocator_.release(release_of(*last, call.stream));
  if (!pool_.serves_apart(capture->id, bytes)) return workspace;
  if (!workspaces_.left(capture->id)) workspaces_.bound(capture->id, shortage_.free_memory().left());
  if (!workspaces_.may_have(capture->id, bytes)) return workspace;
  if (allocator_.allocate(call) != CUDA_SUCCESS) {
    workspaces_.full(capture->id);
    return workspace;
  }
  workspaces_.began(capture->id, workspace, call.memory.address, bytes, nodes, for_one);
  return call.memory.address;
}

void WorkspaceSlots::release(std::uint64_t capture, const StreamRef& stream) {
  for (const std::uint64_t slot : workspaces_.end(capture)) allocator_.release(release_of(slot, stream));
}

void WorkspaceSlots::forget(std::uint64_t capture) {
  for (const std::uint64_t slot : workspaces_.end(capture)) pool_.release(slot, 0, 0, std::nullopt);
}

}  // namespace nimble::shim
