// Fills new memory during learning. New memory may hold anything, but a program that does the same twice may find in it
// just what it is about to store, and the probe does not see a store of an equal value. So new memory gets what no
// kernel stores: a distinct word for each allocation, which is a finite number in all usual formats, and not an
// address.
//
// Owns the count of these words. No lock; calls the driver. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "nimble/internal/call.h"
#include "shim/rewrite/capture/captures_under_way.h"

namespace nimble::shim {

class MemoryFill {
 public:
  // The referenced objects must outlive it.
  MemoryFill(CallContext& context, const CapturesUnderWay& captures) : context_(context), captures_(captures) {}

  // The call has allocated memory.
  void came(const Call& call);

 private:
  CallContext& context_;
  const CapturesUnderWay& captures_;
  std::atomic<std::uint32_t> fills_{0};
};

}  // namespace nimble::shim
