// NIMBLE_MODE=auto: records, analyzes what was recorded on a background thread, and replays from then on.
//
//   recording -> analyzing -> ready -> replaying (-> recording, if the step no longer occurs) ; aside
//
// While recording, a background thread looks for the step each time the number of calls has doubled. Once the program
// repeats one, that thread makes the schedule, and recording ends. At the next call while no stream captures, replay
// takes over, and is told of the memory that is allocated by then. A look that finds nothing changes nothing, until the
// trace reaches its size limit; nor does one that finds a step without a schedule, but only a few times.
//
// A CallSink: called from any thread. Takes its lock for the few calls that matter later
// (replayer/bind/call_history.h), and for the changes of phase that the program's own threads make: all but those from
// recording to analyzing, to ready and to aside. So the background thread, which runs at low priority, never holds a
// lock that the program waits for. That thread makes no driver call, and ends once it has handed its schedule over; no
// one waits for it. Kept for the life of the process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/call.h"
#include "nimble/internal/evidence.h"
#include "replayer/bind/call_history.h"
#include "replayer/onlookers/onlookers.h"
#include "replayer/replayer.h"
#include "replayer/stats/counters.h"
#include "shim/modes/idle_checks.h"
#include "shim/modes/last_message.h"
#include "shim/process/while_used.h"
#include "shim/record/recorder.h"

namespace nimble::shim {

struct AutoOptions {
  std::vector<std::string> rules;    // files
  Evidence trust = Evidence::exact;  // the weakest evidence that is believed
  std::uint64_t limit_bytes = 0;     // of the trace of one recording
  std::uint32_t most_recordings = 1;
  std::chrono::milliseconds wait{0};  // the longest that the program waits for each look
  std::string stats_path;             // where the counters go if nothing is ever replayed; empty: nowhere
  std::function<void(ReplayLog, const std::string&)> log;
  std::function<void()> enter_helper_thread;  // run first on the background thread
  // Makes a sink that replays the schedule with this text. `counted` is what was counted before; `onlookers` has been
  // told of all calls.
  std::function<std::unique_ptr<ReplaySink>(const std::string& schedule, const CounterValues& counted,
                                            Onlookers& onlookers)>
      replay;
};

class Trial;

class AutoSink final : public CallSink {
 public:
  // The number of calls at the first look. How many ops a thread issues between checks that the schedule's step still
  // occurs, and after how many checks without one to give up.
  static constexpr std::uint64_t kFirstLook = 256;
  static constexpr std::uint32_t kOpsPerCheck = 4096, kIdleChecks = 8;

  // `context` must outlive the sink, which must not be destroyed while its background thread may run.
  AutoSink(AutoOptions options, CallContext& context);

  Answer before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  CUresult told(const Call& call, CUresult result) noexcept override;
  bool give_back(const Call& call) noexcept override;
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  void finish() noexcept override;
  bool forked() noexcept override;

 private:
  enum class Phase : std::uint8_t {
    recording,
    analyzing,  // the calls pass
    ready,      // the same: replay takes over as soon as it can
    replaying,  // or replay has stood aside on its own
    aside,      // for good
  };

  // One recording. Destroyed when it has ended and no call is inside it.
  struct Recording {
    Recording(std::uint64_t limit_bytes, CallContext& context);

    // Whether it has ended too early, for want of memory or threads.
    bool is_broken() const { return recorder.failed() && !store->full(); }

    std::shared_ptr<TraceStore> store;
    Recorder recorder;
    std::atomic<std::uint64_t> target{kFirstLook};     // the number of calls at which to look next
    mutable std::atomic<std::uint64_t> waited_for{0};  // the target for which the program has waited long enough
    std::atomic<bool> watched{false};                  // the background thread has been started
  };
  using Recordings = WhileUsed<Recording>;

  void start_thread(const Recordings::Use& recording);
  void work(Recordings::Use recording) noexcept;
  void look_for_step(Recording& recording);
  void replay_by(Recording& recording, const std::string& schedule, const std::string& what,
                 const std::string& beliefs);
  void wait_for_look(const Recording& recording) const;
  void look(Call& call);
  void take_over();
  void check_whether_it_matches();
  void record_again(std::unique_ptr<Recording> next);
  void stand_aside(std::string_view why) noexcept;

  const AutoOptions options_;
  CallContext& context_;
  analyzer::KeptRules rules_;

  // Read by every call, rarely written.
  alignas(64) std::atomic<Phase> phase_{Phase::recording};
  Recordings recording_;                         // that goes on, if any does
  std::atomic<ReplaySink*> replaying_{nullptr};  // from `ready` on; the last one

  Onlookers onlookers_;           // told of each call here, or by the replaying sink
  alignas(64) std::mutex mutex_;  // guards what is not atomic
  CallHistory history_;
  bool handed_over_ = false;  // replay now tracks what history_ tracked before
  // Ended replays. Other threads may still be inside, so they stay.
  std::vector<ReplaySink*> retired_;
  std::atomic<std::uint32_t> recordings_{0};
  CounterValues counted_;  // by replays that have ended; constant while the background thread runs
  IdleChecks idle_checks_{kIdleChecks};
  std::atomic<std::uint64_t> steps_marked_{0};
  std::atomic<bool> finished_{false};
  std::atomic<bool> gave_way_{false};  // a recording has ended that was broken, and its memory is there again
  std::once_flag beliefs_told_;
  std::mutex aside_mutex_;  // held while the reason is logged: the process does not end in the middle of that
  LastMessage state_;       // of the recording, for the end
};

}  // namespace nimble::shim
