// Device times without CUPTI: a pair of the driver's own events around each op (NIMBLE_TIMING=events).
//
// Costs two event records an op, and times include the gap to the neighbours on the stream. Nothing is timed while the
// program captures, since the events would end up in its graph; another thread's capture is not invalidated, since no
// call here concerns its streams or counts as unsafe for it. Called from any thread; one lock, not held around the
// program's own calls. Must be used with the guard entered.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/record/facts/device_time.h"

namespace nimble::shim {

class EventTimer {
 public:
  // `on_times` may be called from any thread that uses the timer, and must not throw.
  EventTimer(CallContext& context, std::function<void(std::span<const DeviceTime>)> on_times);

  // Why events cannot be used with this driver; empty if they can.
  const std::string& why_not() const { return why_not_; }

  // Before and after the op goes to the driver; `ticket` names it from here on.
  void begin(const Call& call, std::uint64_t ticket);
  // Returns whether a time will come.
  bool end(const Call& call, bool submitted);

  // The current context is about to end: times not read yet stay unknown.
  void context_ends();
  // Hands over the times known by now. Later calls do nothing.
  void stop();

 private:
  // One origin a context: events of different contexts cannot be compared.
  struct Origin {
    CUstream stream = nullptr;  // our own: the program's may be busy, or capturing
    CUevent event = nullptr;
    std::uint64_t host_ns = 0;
    std::vector<CUevent> free;
  };
  struct Pair {
    CUcontext context = nullptr;
    CUevent begin = nullptr, end = nullptr;
    std::uint64_t ticket = 0;
  };

  class Relaxed;
  Origin* origin_of(CUcontext context);
  CUevent take(Origin& origin);
  void put_back(CUcontext context, CUevent begin, CUevent end);
  void collect(std::size_t leave);

  decltype(&::cuCtxGetCurrent) get_current_ = nullptr;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_mode_ = nullptr;
  decltype(&::cuStreamCreate) create_stream_ = nullptr;
  decltype(&::cuEventCreate) create_ = nullptr;
  decltype(&::cuEventRecord) record_ = nullptr;
  decltype(&::cuEventQuery) query_ = nullptr;
  decltype(&::cuEventSynchronize) synchronize_ = nullptr;
  decltype(&::cuEventElapsedTime) elapsed_ = nullptr;
  std::function<void(std::span<const DeviceTime>)> on_times_;
  std::string why_not_;

  std::mutex mutex_;  // guards all below
  std::unordered_map<CUcontext, Origin> origins_;
  std::deque<Pair> pending_;  // in the order of submission
  bool stopped_ = false;
};

}  // namespace nimble::shim
