// NIMBLE_PROBE=writes: sees what each kernel writes, by comparing memory before and after it.
//
// Around a launch: wait until all is done that it would wait for, digest every object that its parameters name (the
// same words that the analyzer takes for pointers), launch, wait until it is done, digest again. What differs was
// written. A launch that is not compared, or an object that is not, is only less that is known: the trace lists what
// was compared, and the analyzer goes by that list alone.
//
// What else writes to these objects between the two digests is blamed on the launch, so more writes may be seen than
// there were, never fewer. To keep that rare, a launch that is being compared has the device to itself as far as the
// program's own calls go: calls of other threads that submit or free something wait until it is over (pass()). What was
// on its way before goes on.
//
// It steps aside for good, with a warning, where a wait gets nowhere (two kernels may be waiting for each other, and
// the program would launch the second if it were let) or the driver keeps refusing. Nothing is compared while a stream
// captures, or is about to. No error of its own reaches the program.
//
// Called from any thread, with the guard entered; one lock, and only in this mode.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/record/facts/probe_totals.h"
#include "shim/record/observers/probe/gate.h"
#include "shim/record/observers/probe/live_objects.h"
#include "shim/state/device_reader.h"
#include "shim/state/digest.h"

namespace nimble::shim {

struct ProbeOptions {
  std::uint64_t limit_bytes = 0;  // larger objects are not compared; 0: all are
  std::chrono::milliseconds patience{2000};
  std::uint64_t launches = 0;  // none beyond so many are compared; 0: all are
  bool (*wanted)() = nullptr;  // whether this thread's launches are compared; null: all are
};

class Probe {
 public:
  Probe(ProbeOptions options, CallContext& context);

  // Before the driver is called. `any_captures`: whether a stream captures, as far as the recorder knows.
  void before(const Call& call, const std::atomic<bool>& any_captures) noexcept;

  // After it. For a launch that was compared: the objects (reads) and then the changed ranges in them (writes), each
  // ascending by address; good until the thread's next call. Null for everything else.
  const std::vector<TraceAccess>* after(const Call& call, CUresult result) noexcept;
  // In its place, where nobody keeps what it would tell; nothing behind it. Whoever waits for this thread's launch goes
  // on.
  void leave() noexcept;
  // An allocation has succeeded, as the trace has it.
  void allocated(const Call& call) noexcept;

  ProbeTotals totals() const;

 private:
  struct Target {
    std::uint64_t base = 0, size = 0;
    ChunkDigests before, after;
  };

  void open_window(const Call& call, const std::atomic<bool>& any_captures);
  bool find_targets(const Call& call);
  bool digest(CUstream stream, ChunkDigests Target::*which);
  void look_for_addresses(const Target& target, std::size_t first, std::span<const std::uint8_t> bytes, bool is_behind);
  void compare(std::vector<TraceAccess>& seen) const;
  void close_window() noexcept;
  // Waits until no launch is being compared.
  void pass();
  bool failed(DeviceReader::Outcome outcome, const char* doing);
  void give_up(const std::string& why) noexcept;

  const ProbeOptions options_;
  CallContext& context_;
  LiveObjects objects_;
  std::atomic<int> captures_beginning_{0};
  std::atomic<bool> off_{false};

  Gate gate_;  // entered while a launch is compared; who is inside has all below to itself
  DeviceReader reader_;
  std::vector<Target> targets_;
  std::vector<std::uint8_t> params_;
  bool addresses_ = false;  // what was written may be addresses of the program's memory
  bool holds_any_ = false;  // the same of anything that lies in what was compared, before the launch or behind it
  int failures_ = 0;
  std::set<std::pair<std::uint64_t, std::uint64_t>> left_out_;

  mutable std::mutex totals_mutex_;
  ProbeTotals totals_;
};

}  // namespace nimble::shim
