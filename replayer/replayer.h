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
// not take it (replayer/bystanders.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "nimble/call.h"
#include "replayer/tuner.h"

namespace nimble {

enum class ReplayLog : std::uint8_t { info, warning };

struct ReplayOptions {
  std::string schedule_path;
  std::string stats_path;  // empty: no file
  std::chrono::microseconds hold{1000};
  Tune tune = Tune::off;
  std::uint32_t audit = 0;  // every so many steps one is audited (replayer/audit.h); 0: none
  std::function<void(ReplayLog, const std::string&)> log;
  std::function<void()> enter_helper_thread;  // run first on each thread of ours
};

// The schedule is read at the first call that matters, so processes that never use the GPU read nothing. A schedule
// that cannot be read is said in the log, and everything passes through. `context` must outlive the replayer, which
// must not be destroyed while its helper thread may run: keep it for the life of the process.
std::unique_ptr<CallSink> make_replayer(ReplayOptions options, CallContext& context);

}  // namespace nimble
