// NIMBLE_PROBE=writes: finds what each kernel writes, by comparing memory before and after it.
//
// Around a launch: wait for everything that it would wait for, digest every object that its parameters name (the same
// words that the analyzer takes for pointers), launch, wait until it is done, digest again. What differs was written.
// If a launch or an object is not compared, we only know less: the trace lists what was compared, and the analyzer
// relies on that list alone.
//
// Other writes to these objects between the two digests are attributed to the launch, so we may see more writes than
// there were, never fewer. To keep that rare, calls of other threads that submit or free something wait until the
// launch is over (pass()). Work in flight goes on.
//
// It steps aside for good, with a warning, if a wait times out (the kernel may be waiting for a second one that the
// program would launch if we let it) or the driver keeps refusing. Compares nothing while a stream captures, or is
// about to. None of its own errors reaches the program.
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
  std::uint64_t limit_bytes = 0;  // larger objects are not compared; 0: no limit
  std::chrono::milliseconds patience{2000};
  std::uint64_t launches = 0;  // how many to compare; 0: all
  bool (*wanted)() = nullptr;  // whether this thread's launches are compared; null: all are
};

class Probe {
 public:
  Probe(ProbeOptions options, CallContext& context);

  // Before the driver is called. `any_captures`: whether a stream captures, as far as the recorder knows.
  void before(const Call& call, const std::atomic<bool>& any_captures) noexcept;

  // After it. For a launch that was compared: the objects (reads) and then the changed ranges in them (writes), each
  // ascending by address; valid until the thread's next call. Null for everything else.
  const std::vector<TraceAccess>* after(const Call& call, CUresult result) noexcept;
  // Instead of after(), if its result is not wanted; harmless after it. Releases those that wait for this thread's
  // launch.
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

  Gate gate_;  // entered while a launch is compared; whoever is inside owns everything below
  DeviceReader reader_;
  std::vector<Target> targets_;
  std::vector<std::uint8_t> params_;
  bool addresses_ = false;  // what was written may hold addresses of the program's memory
  bool holds_any_ = false;  // the same of anything in the compared memory, before the launch or after it
  int failures_ = 0;
  std::set<std::pair<std::uint64_t, std::uint64_t>> left_out_;

  mutable std::mutex totals_mutex_;
  ProbeTotals totals_;
};

}  // namespace nimble::shim
