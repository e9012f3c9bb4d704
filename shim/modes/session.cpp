// The life of libnimble.so in a process: set up on first use, inactive in forked children, finished at exit. What it
// does with the calls it intercepts the environment decides: nothing (off), record, replay, all in turn (auto),
// regions, or check what they touch.

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "nimble/internal/process/quiet_file.h"
#include "replayer/replayer.h"
#include "shim/driver/call_receiver.h"
#include "shim/driver/dlsym_hook.h"
#include "shim/driver/guard.h"
#include "shim/driver/interception.h"
#include "shim/driver/real_driver.h"
#include "shim/live/live_file.h"
#include "shim/modes/auto_sink.h"
#include "shim/modes/check_sink.h"
#include "shim/modes/region_sink.h"
#include "shim/options/options.h"
#include "shim/process/in_handler.h"
#include "shim/process/log.h"
#include "shim/process/roomy_stack.h"
#include "shim/record/observers/make_observers.h"
#include "shim/record/recorder.h"
#include "shim/rewrite/graph_sink.h"
#include "shim/state/call_context.h"
#include "shim/state/code/image_facts.h"
#include "shim/state/code/proof_folder.h"

namespace nimble::shim {

namespace {

constexpr std::uint64_t kRegionBytes = std::uint64_t{256} << 20;  // of the trace of one region, while it is compiled

std::atomic<pid_t> g_owner{0};  // the process whose calls g_sink receives
std::atomic<LiveFile*> g_live{nullptr};

ReplayOptions replay_options(const Options& options) {
  ReplayOptions replay;
  replay.schedule_path = options.schedule;
  replay.stats_path = options.stats;
  replay.hold = std::chrono::microseconds(options.hold_us);
  if (options.audit_is_set) replay.audit = static_cast<std::uint32_t>(options.audit);
  replay.tune = options.tune;
  replay.tune_save = options.tune_save && options.mode == Mode::replay;
  replay.log = [](ReplayLog level, const std::string& text) {
    log(level == ReplayLog::info ? LogLevel::info : LogLevel::warning, text);
  };
  // The thread's own driver calls pass through, for its whole life.
  replay.enter_helper_thread = Guard::stay_inside;
  return replay;
}

std::uint64_t bytes_of(std::int64_t mib) { return static_cast<std::uint64_t>(mib) << 20; }

RecorderOptions recorder_options(const Options& options) {
  RecorderOptions recorder;
  recorder.path = options.trace;
  recorder.limit_bytes = bytes_of(options.trace_limit);
  recorder.steps = static_cast<std::uint32_t>(options.steps);
  recorder.look_limit_bytes = bytes_of(options.auto_limit);
  return recorder;
}

ObserverOptions observer_options(const Options& options) {
  ObserverOptions observers;
  observers.timing = options.timing;
  observers.coverage = options.coverage;
  observers.probe = options.probe;
  observers.probe_limit_bytes = bytes_of(options.probe_limit);
  observers.probe_first = static_cast<std::uint64_t>(options.probe_first);
  if (options.capture) observers.bundle = options.bundle;
  observers.bundle_limit_bytes = bytes_of(options.bundle_limit);
  return observers;
}

std::atomic<bool> g_proofs_are_kept{false};

// Proofs go where the user wants them.
void keep_proofs(const Options& options) {
  std::string why;
  std::string folder = folder_of_proofs(options.cache, why);
  const auto tell = [](const std::string& text) { log(LogLevel::info, text); };
  if (!why.empty()) tell("proofs are not kept: " + why);
  if (folder.empty()) return;
  g_proofs_are_kept = true;
  proofs()->use(std::make_unique<ProofFolder>(std::move(folder), tell));
  constexpr std::uint32_t kCheckOneIn = 64;
  proofs()->check_one_in(kCheckOneIn, static_cast<std::uint64_t>(getpid()));
}

CallSink* make_recorder(const Options& options) {
  if (has_few_descriptors()) {
    log(LogLevel::warning,
        "RLIMIT_NOFILE leaves the program few descriptors, and Nimble takes none of them: not recording");
    return nullptr;
  }
  return new Recorder(recorder_options(options), call_context(),
                      make_observers(observer_options(options), call_context()));
}

CallSink* make_auto_sink(const Options& options) {
  AutoOptions automatic;
  automatic.rules = options.rules;
  automatic.trust = options.trust;
  automatic.limit_bytes = bytes_of(options.auto_limit);
  automatic.most_recordings = static_cast<std::uint32_t>(options.auto_tries);
  automatic.wait = std::chrono::milliseconds(options.auto_wait);
  automatic.stats_path = options.stats;
  const ReplayOptions replay = replay_options(options);
  automatic.log = replay.log;
  automatic.enter_helper_thread = replay.enter_helper_thread;
  automatic.replay = [replay](const std::string& schedule, const CounterValues& counted, Onlookers& onlookers) {
    ReplayOptions own = replay;
    own.schedule_path = "auto";
    own.schedule_text = schedule;
    own.counted = counted;
    return make_replayer(std::move(own), call_context(), &onlookers);
  };
  return new AutoSink(std::move(automatic), call_context());
}

CallSink* make_region_sink(const Options& options) {
  RegionOptions regions;
  regions.limit_bytes = kRegionBytes;
  regions.rules = options.rules;
  regions.trust = options.trust;
  regions.log = [](const std::string& text) { log(LogLevel::info, text); };
  return new RegionSink(std::move(regions), call_context());
}

CallSink* make_check_sink(const Options& options) {
  CheckOptions check;
  check.every = static_cast<std::uint64_t>(options.check_every);
  check.seed = static_cast<std::uint64_t>(options.check_seed);
  check.rules = options.rules;
  check.trust = options.trust;
  check.stats_path = options.stats;
  check.log = [](bool is_error, const std::string& text) { log(is_error ? LogLevel::error : LogLevel::info, text); };
  check.enter_helper_thread = replay_options(options).enter_helper_thread;
  return new CheckSink(std::move(check), call_context());
}

CallSink* make_graph_sink(const Options& options) {
  GraphOptions graphs;
  graphs.rules = options.rules;
  graphs.trust = options.trust;
  graphs.limit_bytes = bytes_of(options.auto_limit);
  graphs.tune = options.tune;
  graphs.probe = options.probe;
  graphs.probe_learned = options.trust >= Evidence::observed;  // else it would not be used
  graphs.probe_limit_bytes = bytes_of(options.probe_limit);
  graphs.probe_first = static_cast<std::uint64_t>(options.probe_first);
  graphs.trace_path = options.graphs_trace;
  graphs.log = replay_options(options).log;
  return new GraphSink(std::move(graphs), call_context());
}

CallSink* make_sink(const Options& options) {
  switch (options.mode) {
    case Mode::record:
      return make_recorder(options);
    case Mode::replay:
      return make_replayer(replay_options(options), call_context()).release();
    case Mode::automatic:
      return make_auto_sink(options);
    case Mode::regions:
      return make_region_sink(options);
    case Mode::check:
      return make_check_sink(options);
    case Mode::off:
      return options.graphs ? make_graph_sink(options) : nullptr;
  }
  return nullptr;
}

// A forked child never writes, flushes or closes what belongs to its parent. Data-loader workers fork and never use the
// GPU. A child whose parent has not used it either may do so: it is a process like any other, and starts its own
// session with its first call.
void in_forked_child() {
  CallSink* const parents = started_sink();
  if (!parents) return;
  if (LiveFile* const live = g_live.exchange(nullptr, std::memory_order_acq_rel)) live->let_go();
  g_sink.store(parents->forked() ? kUnstarted : 0, std::memory_order_release);
}

// What became of proofs, once.
void tell_of_proofs() noexcept try {
  if (!g_proofs_are_kept.exchange(false)) return;
  const code::ProofCache::Counts counts = proofs()->counts();
  if (counts.proven + counts.from_files > 0)
    log(LogLevel::info, fmt::format("proofs: {} made, {} read from the cache", counts.proven, counts.from_files));
  if (counts.refuted > 0)
    log(LogLevel::warning,
        fmt::format("proofs: {} cached proofs did not match the code and were redone; please report this",
                    counts.refuted));
} catch (...) {  // out of memory
}

// Every way out of main leads here, and so does _exit. Idempotent. Children made by vfork or by the program's own
// system calls run none of the handlers above, and some share our memory: we recognise them by their process id.
void finish_unless(bool interrupted) {
  CallSink* const receiver = started_sink();
  if (!receiver || g_owner.load(std::memory_order_acquire) != getpid()) return;
  Guard guard;
  LiveFile* const live = g_live.load(std::memory_order_acquire);
  with_room([&] {
    if (!guard.outermost() || interrupted) {
      receiver->finish_interrupted();
      if (live) live->end_interrupted();
      return;
    }
    receiver->finish();
    if (live) live->end(*receiver);
    tell_of_proofs();  // not in a handler that has interrupted us: it takes memory
  });
}

void finish() { finish_unless(false); }

// Registers the handlers, once.
void register_handlers() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, in_forked_child);
  at_quick_exit(finish);
}

__attribute__((constructor)) void start() {
  remember_stderr();
  find_next_hooks();
  try {
    const Options options = read_options();
    if (!options.complaint.empty()) log(LogLevel::error, options.complaint);
  } catch (...) {  // out of memory: no message
  }
  decide_interception();
}

// The static destructors of libraries that were loaded at the start run after this, and threads may still be calling:
// the sink stays, and knows that it has finished.
__attribute__((destructor)) void end() { finish(); }

}  // namespace

constinit std::atomic<Interception> g_interception{Interception::undecided};
constinit std::atomic<std::uintptr_t> g_sink{kUnstarted};

// Concurrent threads all read the same.
Interception decide_interception() noexcept {
  bool wanted = false;
  try {
    wanted = with_room([] {
      remember_stderr();
      const Options options = read_options();
      return options.mode != Mode::off || options.graphs;
    });
  } catch (...) {  // out of memory: the program runs untouched
  }
  const Interception decided = wanted ? Interception::on : Interception::off;
  if (decided == Interception::on) register_handlers();
  g_interception.store(decided, std::memory_order_release);
  return decided;
}

namespace {

// What the user is told from the begin.
void begin_to_tell(CallSink& sink, const std::string& own_files, const std::string& live,
                   const std::string& mode) noexcept try {
  if (!own_files.empty()) log(LogLevel::warning, own_files);
  if (live.empty()) return;
  auto file = std::make_unique<LiveFile>();
  file->open(live, mode);
  LiveFile* const kept = file.release();  // its thread goes on to the end
  g_live.store(kept, std::memory_order_release);
  kept->keep(sink);
} catch (...) {  // out of memory
}

// Concurrent threads each make one, and one of them stays.
CallSink* make_session() noexcept {
  std::unique_ptr<CallSink> made;
  std::string own_files, live, mode;
  if (intercepting()) {
    try {
      Options options = read_options();
      own_files = std::move(options.own_files);
      live = options.live;
      mode = name_of_mode(options);
      static std::once_flag once;
      std::call_once(once, [&] { keep_proofs(options); });
      made.reset(make_sink(options));
      g_owner.store(getpid(), std::memory_order_release);
    } catch (...) {  // out of memory: the program runs untouched
    }
  }
  std::uintptr_t found = kUnstarted;
  if (!g_sink.compare_exchange_strong(found, reinterpret_cast<std::uintptr_t>(made.get()), std::memory_order_acq_rel))
    return reinterpret_cast<CallSink*>(found);
  CallSink* const sink = made.release();
  if (sink) begin_to_tell(*sink, own_files, live, mode);
  return sink;
}

}  // namespace

CallSink* start_session() noexcept {
  return with_room([] { return make_session(); });
}

}  // namespace nimble::shim

// Runs before libc's _exit: there is no later moment at which to close the trace.
extern "C" __attribute__((visibility("hidden"))) void nimble_before_exit() {
  nimble::shim::find_next_hooks();
  nimble::shim::finish_unless(nimble::shim::may_be_in_handler());
}
