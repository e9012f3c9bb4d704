// Where memory is short: whether captures may have some of it, and what can go at once.
//
// Each capture has memory of its own here, and the driver's graphs share theirs as far as they do not run at the same
// time. So a capture that nobody learns from gets some only while others have no more than a part of what is left, and
// not more than a part of that; what is beyond is the driver's to serve, and the graph stays as it is.
//
// Owns nothing but what it has said. No lock; calls the driver. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "nimble/internal/call.h"
#include "shim/rewrite/allocate/free_memory.h"
#include "shim/rewrite/capture/capture_requests.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class MemoryShortage {
 public:
  // `probes`: somebody looks at memory all the time. What the references name must outlive it.
  MemoryShortage(CallContext& context, CapturePool& pool, const CaptureRequests& requests, bool probes,
                 const RewriteLog& log)
      : pool_(pool), free_(context, pool), requests_(requests), probes_(probes), log_(log) {}

  FreeMemory& free_memory() { return free_; }
  // Whether the driver is to serve this capture; else it has a bound from now on, where it needs one.
  bool leaves_to_driver(std::uint64_t capture, const CaptureHome& home);
  // What graphs have while they run goes, of those that are known not to. How much that was.
  std::uint64_t give_back_transient(CUcontext context);

 private:
  CapturePool& pool_;
  FreeMemory free_;
  const CaptureRequests& requests_;
  const bool probes_;
  const RewriteLog& log_;
  std::atomic<bool> said_{false};  // that captures are left to the driver
};

}  // namespace nimble::shim
