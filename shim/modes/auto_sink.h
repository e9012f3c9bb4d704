// NIMBLE_MODE=auto: records, analyzes what was recorded on a background thread, and replays from then on.
//
//   recording -> analyzing -> ready -> replaying (-> recording, where the step does not come any more) ; aside
//
// While recording, a background thread looks for the step each time that twice as many calls are there. Once the
// program repeats one, that thread makes the schedule, and recording ends. With the next call at which no stream
// captures, replay takes over, and is told of the memory that is allocated by then. A look that finds nothing leaves
// all as it is, until the limit on the trace's size is reached; one that finds a step without a schedule does so too,
// but for a few times at most.
//
// A CallSink: called from any thread. Its lock is taken for the few calls that matter to whoever comes later
// (replayer/bind/call_history.h), and for the changes of phase that the program's own threads make: all but those from
// recording to analyzing, to ready and to aside. So the background thread, which runs at low priority, never holds a
// lock that the program waits for. That thread makes no driver call, and ends once it has handed its schedule over; it
// is never waited for. Kept for the life of the process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/call.h"
#include "replayer/bind/call_history.h"
#include "replayer/order/onlookers.h"
#include "replayer/replayer.h"
#include "replayer/stats/counters.h"
#include "shim/process/while_used.h"
#include "shim/record/recorder.h"

namespace nimble::shim {

struct AutoOptions {
  std::vector<std::string> rules;  // files
  std::uint64_t limit_bytes = 0;   // of the trace of one recording
  std::uint32_t most_recordings = 1;
  std::chrono::milliseconds wait{0};  // how long the program waits at most for each look
  std::string stats_path;             // where the counters go if nothing is ever replayed; empty: nowhere
  std::function<void(ReplayLog, const std::string&)> log;
  std::function<void()> enter_helper_thread;  // run first on the background thread
  // Makes what replays a schedule, which this is the text of. `counted` is what was counted before; `onlookers` has
  // been told of all calls.
  std::function<std::unique_ptr<ReplaySink>(const std::string& schedule, const CounterValues& counted,
                                            Onlookers& onlookers)>
      replay;
};

class Trial;

class AutoSink final : public CallSink {
 public:
  // How many calls are there at the first look. How many ops a thread issues from one check to the next whether the
  // schedule's step still comes, and how many checks without one are too many.
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
    replaying,  // or replay stands aside by itself
    aside,      // for good
  };

  // One recording. It goes when it has ended and no call is on its way through it.
  struct Recording {
    Recording(std::uint64_t limit_bytes, CallContext& context);

    std::shared_ptr<TraceStore> store;
    Recorder recorder;
    std::atomic<std::uint64_t> target{kFirstLook};     // how many calls there have to be for the next look
    mutable std::atomic<std::uint64_t> waited_for{0};  // the target that the program has waited for long enough
    std::atomic<bool> watched{false};                  // the background thread has been started
  };
  using Recordings = WhileUsed<Recording>;

  void start_thread(const Recordings::Use& recording);
  void work(Recordings::Use recording) noexcept;
  void look_for_step(Recording& recording);
  void replay_by(Recording& recording, const std::string& schedule, const std::string& what);
  void wait_for_look(const Recording& recording) const;
  void look(Call& call);
  void take_over();
  void check_whether_it_matches();
  void record_again(std::unique_ptr<Recording> next);
  void stand_aside(const std::string& why) noexcept;
  // What there is to say of the recording from now on.
  void say(std::string text);

  const AutoOptions options_;
  CallContext& context_;

  // What every call reads, and next to nothing writes.
  alignas(64) std::atomic<Phase> phase_{Phase::recording};
  Recordings recording_;                         // that goes on, if any does
  std::atomic<ReplaySink*> replaying_{nullptr};  // from `ready` on; the last one

  Onlookers onlookers_;           // told of each call here, or by what replays
  alignas(64) std::mutex mutex_;  // guards what is not atomic
  CallHistory history_;
  bool handed_over_ = false;  // replay follows now what history_ has followed before
  // What has ended. Other threads may still be inside, so it stays.
  std::vector<ReplaySink*> retired_;
  std::atomic<std::uint32_t> recordings_{0};
  CounterValues counted_;      // by replays that have ended; constant while the background thread runs
  std::uint64_t matched_ = 0;  // at the last check
  bool ever_matched_ = false;
  std::uint32_t idle_checks_ = 0;
  std::atomic<std::uint64_t> steps_marked_{0};
  std::atomic<bool> finished_{false};
  std::mutex aside_mutex_;  // while it is said why: the process does not end in the middle of that
  std::mutex said_mutex_;   // guards the list; what was said stays, and the last of it is read without the lock
  std::list<std::string> said_;
  std::atomic<const std::string*> last_said_{nullptr};
};

}  // namespace nimble::shim
