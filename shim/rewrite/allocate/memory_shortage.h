// When memory is short: whether captures may have some, and what can be released at once.
//
// Each capture has memory of its own here, and the driver's graphs share theirs as far as they do not run at the same
// time. So a capture that is not learned from gets some only while others hold no more than a part of what is left, and
// no more than a part of that; the driver serves the rest, and the graph stays as it is.
//
// Owns only what it has logged. No lock; calls the driver. Any thread.
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
  // `probes`: a probe looks at memory all the time. The referenced objects must outlive it.
  MemoryShortage(CallContext& context, CapturePool& pool, const CaptureRequests& requests, bool probes,
                 const RewriteLog& log)
      : pool_(pool), free_(context, pool), requests_(requests), probes_(probes), log_(log) {}

  FreeMemory& free_memory() { return free_; }
  // Whether the driver is to serve this capture; if not, sets the capture's limit, if it needs one.
  bool leaves_to_driver(std::uint64_t capture, const CaptureHome& home);
  // Releases the transient memory of graphs that are known not to run. Returns how much.
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
