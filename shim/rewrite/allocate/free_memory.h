// How much of a device's memory is free: really, and as we tell the program (cuMemGetInfo). The latter is what would be
// free if the driver had served its captures: it includes all that Nimble holds for them, except what the driver would
// keep (shim/rewrite/memory/graph_reserve.h).
//
// Owns nothing. No lock; calls the driver. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "nimble/internal/call.h"
#include "shim/rewrite/pool/capture_pool.h"

namespace nimble::shim {

class FreeMemory {
 public:
  // Both must outlive it.
  FreeMemory(CallContext& context, CapturePool& pool) : context_(context), pool_(pool) {}

  // The free memory of the current context's device; or of this context's. 0 if unknown.
  std::uint64_t left() const;
  std::uint64_t left_in(CUcontext context) const;
  // What to tell the program of the current context's device; nothing if the driver's answer is right.
  std::optional<std::uint64_t> told();
  // Counts as free what the driver would keep for graphs and no graph uses.
  void trim(CUcontext context);

 private:
  std::optional<CUdevice> device_of(CUcontext context) const;

  CallContext& context_;
  CapturePool& pool_;
};

}  // namespace nimble::shim
