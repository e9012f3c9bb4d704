// Replay mode: recognises the schedule's step in the program's calls and submits it as graphs.
//
// searching -> binding -> replaying. Searching: calls pass, until one is the step's first op. Binding: the first whole
// step that matches passes too, and tells functions and addresses. Replaying: each call is compared with the next op
// and held; at a segment's end, or before a call that could observe it, the held ops are submitted, as one graph if the
// segment is complete, else call by call. A call that is not the next op is a divergence: held ops are submitted in
// program order, and the search begins anew.
//
// A CallSink: called from any thread. One lock guards the state of the streams that are replayed; it is held while held
// ops are submitted, never while the program's own call is made. Threads that do not use these streams do not take it
// (replayer/bystanders/bystanders.h).
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
#include "replayer/onlookers/onlookers.h"
#include "replayer/tune/tuner.h"

namespace nimble {

enum class ReplayLog : std::uint8_t { info, warning };

struct ReplayOptions {
  std::string schedule_path;
  std::string schedule_text;  // if not empty: used in place of the file; the path then names it in the log
  CounterValues counted;      // so far; the report continues from there
  std::string stats_path;     // empty: no file
  std::chrono::microseconds hold{1000};
  Tune tune = Tune::off;
  bool tune_save = false;  // its results go into the schedule's file
  // How often a step is audited, in steps (replayer/audit/audit.h); 0: never; nothing: steps 1, 2, 10, 100
  // and so on, if the schedule rests on beliefs.
  std::optional<std::uint32_t> audit;
  std::function<void(ReplayLog, const std::string&)> log;
  std::function<void()> enter_helper_thread;  // run first on each of our threads
};

// Replay that takes over in the middle of a process (NIMBLE_MODE=auto). Does not use the driver before it does.
class ReplaySink : public CallSink {
 public:
  // Reads the schedule and gets ready. False if there is nothing to replay: report() and the log say why. Before any
  // other call, and without locks: the dynamic loader's may be needed.
  virtual bool load() = 0;
  // Calls come here from now on. `earlier` have the same effect as the earlier ones. Once, after load().
  virtual void take_over(std::span<const Call> earlier) = 0;
  // How many steps have matched so far. Any thread, no lock.
  virtual std::uint64_t steps_matched() const = 0;
  // Ends replay: submits everything that is held; from here on all calls pass. Returns the live allocations; nothing,
  // and replay goes on, while it manages memory or deferred errors of the program.
  virtual std::optional<std::vector<Allocation>> retire() = 0;
};

// The schedule is read at the first call that matters, so processes that never use the GPU read nothing. If the
// schedule cannot be read, the log says so, and everything passes through. `context` must outlive the replayer, which
// must not be destroyed while its helper thread may run: keep it for the life of the process. `onlookers` has been told
// of the calls so far, and the replayer tells it of its own; null: the replayer makes its own at the first call.
std::unique_ptr<ReplaySink> make_replayer(ReplayOptions options, CallContext& context, Onlookers* onlookers = nullptr);

}  // namespace nimble
