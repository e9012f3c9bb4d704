// How much of a device's memory is free: by now, and as the program is told (cuMemGetInfo). That is what there would be
// if the driver had served its captures: all that Nimble holds for them, but for what the driver would keep
// (shim/rewrite/memory/graph_reserve.h).
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

  // What the device of the current context has left; or that of this one. 0 where it is not known.
  std::uint64_t left() const;
  std::uint64_t left_in(CUcontext context) const;
  // What the program is told of the current context's device; nothing where that is what the driver says.
  std::optional<std::uint64_t> told();
  // What the driver would keep for graphs, and no graph uses, is the device's again.
  void trim(CUcontext context);

 private:
  std::optional<CUdevice> device_of(CUcontext context) const;

  CallContext& context_;
  CapturePool& pool_;
};

}  // namespace nimble::shim
