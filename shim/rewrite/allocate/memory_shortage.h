// Where memory is short: how much of a device's there is, whether captures may have some of it, and what can go at
// once.
//
// Each capture has memory of its own here, and the driver's graphs share theirs as far as they do not run at the same
// time. So a capture that nobody learns from gets some only while others have no more than a part of what is left, and
// not more than a part of that; what is beyond is the driver's to serve, and the graph stays as it is.
//
// What the program is told of free memory is what there would be if the driver had served the captures.
//
// Owns nothing but what it has said. No lock; calls the driver. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "nimble/internal/call.h"
#include "shim/rewrite/capture/capture_requests.h"
#include "shim/rewrite/pool/capture_pool.h"
#include "shim/rewrite/rewrite_log.h"

namespace nimble::shim {

class MemoryShortage {
 public:
  // `probes`: somebody looks at memory all the time. What the references name must outlive it.
  MemoryShortage(CallContext& context, CapturePool& pool, const CaptureRequests& requests, bool probes,
                 const RewriteLog& log)
      : context_(context), pool_(pool), requests_(requests), probes_(probes), log_(log) {}

  // How much the device of the current context has left, by now; or that of this one. 0 where it is not known.
  std::uint64_t free_memory() const;
  std::uint64_t free_memory_of(CUcontext context) const;
  // What the program is told of the current context's device; nothing where that is what the driver says.
  std::optional<std::uint64_t> free_memory_told();
  // What the driver would keep for graphs, and no graph uses, is the device's again.
  void trim(CUcontext context);
  // Whether the driver is to serve this capture; else it has a bound from now on, where it needs one.
  bool leaves_to_driver(std::uint64_t capture, const CaptureHome& home);
  // What graphs have while they run goes, of those that are known not to. How much that was.
  std::uint64_t give_back_transient(CUcontext context);

 private:
  std::optional<CUdevice> device_of(CUcontext context) const;

  CallContext& context_;
  CapturePool& pool_;
  const CaptureRequests& requests_;
  const bool probes_;
  const RewriteLog& log_;
  std::atomic<bool> said_{false};  // that captures are left to the driver
};

}  // namespace nimble::shim
