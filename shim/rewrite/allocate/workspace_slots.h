// Slots for cuBLAS's workspaces in captures whose memory is the pool's (shim/rewrite/pool/workspace_table.h): taken and
// released as if the program itself allocated and released them.
//
// Owns which slot stands for which workspace. No lock of its own; calls the driver. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nimble/internal/call.h"
#include "shim/rewrite/allocate/capture_allocator.h"
#include "shim/rewrite/allocate/memory_shortage.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/pool/workspace_table.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class WorkspaceSlots {
 public:
  // The referenced objects must outlive it.
  WorkspaceSlots(CapturePool& pool, CapturesUnderWay& captures, MemoryShortage& shortage, CaptureAllocator& allocator,
                 const RewriteLog& log)
      : pool_(pool), captures_(captures), shortage_(shortage), allocator_(allocator), log_(log) {}

  // The memory that cuBLAS should use on this stream in place of the program's `workspace`: a slot, or that itself.
  // `for_one`: for the next product only. Called outside driver calls.
  std::uint64_t slot_for(CUstream stream, std::uint64_t workspace, std::uint64_t bytes, bool for_one) noexcept;
  // The capture is about to end on this stream: all of its slots are released in it.
  void release(std::uint64_t capture, const StreamRef& stream);
  // The capture has ended unseen.
  void forget(std::uint64_t capture);

 private:
  std::uint64_t take(CUstream stream, std::uint64_t workspace, std::uint64_t bytes, bool for_one);

  CapturePool& pool_;
  CapturesUnderWay& captures_;
  MemoryShortage& shortage_;
  CaptureAllocator& allocator_;
  const RewriteLog& log_;
  WorkspaceTable workspaces_;
};

}  // namespace nimble::shim
