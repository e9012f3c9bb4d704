// A region of the program's, from nimble_region_begin() to nimble_region_destroy(): its recording, then its graph.
//
// The program owns it. The sink (region_sink.h) says which thread may use what of it; state(), why() and becomes() are
// for any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/call.h"
#include "replayer/onlookers/onlookers.h"
#include "replayer/submit/region_graph.h"
#include "shim/modes/region_work.h"
#include "shim/record/recorder.h"

namespace nimble::shim {

class ProgramRegion {
 public:
  enum class State : std::uint8_t { recording, recorded, compiled, refused, stale };

  ProgramRegion(std::uint64_t limit_bytes, CallContext& context);

  State state() const { return state_.load(std::memory_order_acquire); }
  // Why it is refused or stale; else empty.
  std::string why() const;
  // A region that is refused or stale stays so.
  void becomes(State state, std::string why);

 private:
  friend class RegionSink;

  // Whether its recording has ended too early, for want of memory or threads.
  bool is_broken() const { return recorder_->failed() && !store_->full(); }
  // Bytes of device memory that only it uses. Under the sink's lock.
  std::uint64_t bytes() const { return region_ ? region_->arena_bytes() : 0; }

  std::atomic<State> state_{State::recording};
  std::atomic<bool> open_{true};  // some thread records it
  mutable std::mutex why_mutex_;
  std::string why_;

  CUcontext cu_context_ = nullptr;
  std::shared_ptr<RegionWork> work_;           // since it was compiled
  bool has_two_orders_ = false;                // likewise
  std::atomic<bool> in_program_order_{false};  // for good
  bool last_in_program_order_ = false;         // under the lock of work_
  std::atomic<std::uint64_t> by_gate_{0};      // launches
  std::shared_ptr<TraceStore> store_;
  std::unique_ptr<Recorder> recorder_;
  bool gave_way_ = false;  // its recording ended since memory was short
  std::vector<Call> earlier_;
  std::vector<RegionCall> calls_;
  // Since it was compiled, until its memory is needed elsewhere: changes under the lock of the sink and that of work_,
  // with its gate closed. Launches have the latter lock, or are in the gate.
  std::unique_ptr<RegionGraph> region_;
};

}  // namespace nimble::shim
