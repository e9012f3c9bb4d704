// Replay mode: recognises the schedule's step in the program's calls and submits it as graphs.
//
// searching -> binding -> replaying. Searching: the calls pass, until one is the step's first op. Binding: the first
// whole step that matches passes through as well, and tells functions and addresses. Replaying: each call is compared
// with the next op and held back; at a segment's end, or before a call that could observe it, what is held is
// submitted, as one graph where the segment is whole, else call by call. A call that is not the next op is a
// divergence: what is held is submitted in program order, and the search begins anew.
//
// A CallSink: called from any thread. One lock guards the state of the streams that are replayed; it is held while held
// ops are submitted, never while the program's own call is made. Threads that have nothing to do with these streams do
// not take it (replayer/match/unrelated_calls.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/counters.h"
#include "replayer/bind/memory_map.h"
#include "replayer/order/onlookers.h"
#include "replayer/tune/tuner.h"

namespace nimble {

enum class ReplayLog : std::uint8_t { info, warning };

struct ReplayOptions {
  std::string schedule_path;
  std::string schedule_text;  // where it is not empty: what the file would hold; the path then names it in the log
  CounterValues counted;      // before; the report goes on from there
  std::string stats_path;     // empty: no file
  std::chrono::microseconds hold{1000};
  Tune tune = Tune::off;
  bool tune_save = false;   // what it finds goes into the schedule's file
  std::uint32_t audit = 0;  // every so many steps one is audited (replayer/audit/audit.h); 0: none
  std::function<void(ReplayLog, const std::string&)> log;
  std::function<void()> enter_helper_thread;  // run first on each thread of ours
};

// Replay that takes over in the middle of a process (NIMBLE_MODE=auto). Nothing is made current or asked of the driver
// before it does.
class ReplaySink : public CallSink {
 public:
  // Reads the schedule and gets ready. False where there is nothing to replay: report() says why, and so does the log.
  // Before any other call, and without locks: the dynamic loader's may be needed.
  virtual bool load() = 0;
  // The calls from now on come here. `earlier` have the same effect as those that came elsewhere. Once, after load().
  virtual void take_over(std::span<const Call> earlier) = 0;
  // How many steps have matched so far. Any thread, no lock.
  virtual std::uint64_t steps_matched() const = 0;
  // Ends replay: everything that is held is submitted, and all calls pass from here on. Returns the allocations that
  // are alive; nothing, and replay goes on, while it has memory or errors of the program's to look after.
  virtual std::optional<std::vector<Allocation>> retire() = 0;
};

// The schedule is read at the first call that matters, so processes that never use the GPU read nothing. A schedule
// that cannot be read is said in the log, and everything passes through. `context` must outlive the replayer, which
// must not be destroyed while its helper thread may run: keep it for the life of the process. `onlookers` has been told
// of the calls so far and is of those that come here; null: the replayer has one of its own from the first call on.
std::unique_ptr<ReplaySink> make_replayer(ReplayOptions options, CallContext& context, Onlookers* onlookers = nullptr);

}  // namespace nimble
