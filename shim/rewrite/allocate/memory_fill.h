// Fills new memory while it is learned from. What is in new memory is nobody's business, but a program that does the
// same twice may find there what it is about to store, and a store of what was there already is not seen. So new memory
// holds what no kernel stores: a word of its own for each allocation, which is a finite number in all usual formats,
// and no address.
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
  // What the references name must outlive it.
  MemoryFill(CallContext& context, const CapturesUnderWay& captures) : context_(context), captures_(captures) {}

  // The call has allocated memory.
  void came(const Call& call);

 private:
  CallContext& context_;
  const CapturesUnderWay& captures_;
  std::atomic<std::uint32_t> fills_{0};
};

}  // namespace nimble::shim
