#include "shim/modes/auto_sink.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "analyzer/service.h"
#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/own_thread.h"
#include "nimble/internal/process/patience.h"
#include "shim/process/log.h"

namespace nimble::shim {

namespace {

constexpr std::chrono::milliseconds kLookEvery{5};  // how often the background thread checks for enough calls
// How much nicer than the program's threads the background thread is. The nicest of all would get next to nothing on a
// machine whose cores are all in use: replay would never begin.
constexpr int kNicer = 5;
// If the steps found explain less of the work than this, other kinds of step may have been too rare so far: look this
// many more times, each at twice as many calls.
constexpr double kExplainsEnough = 0.9;
constexpr int kLooksForOtherKinds = 3;

// The use of the recording that before() took for this call, for after() on the same thread: calls do not nest. And the
// ops that the thread has issued since the last check.
thread_local DetachedUse t_recorded __attribute__((tls_model("initial-exec")));
thread_local std::uint32_t t_ops __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace

AutoSink::AutoSink(AutoOptions options, CallContext& context)
    : options_(std::move(options)), context_(context), rules_(options_.rules), onlookers_(context), history_(context) {
  recording_.put(std::make_unique<Recording>(options_.limit_bytes, context_));
  recordings_ = 1;
  onlookers_.expect();
}

AutoSink::Recording::Recording(std::uint64_t limit_bytes, CallContext& context)
    : store(std::make_shared<TraceStore>(limit_bytes)),
      recorder(RecorderOptions{.path = "NIMBLE_MODE=auto", .store = store}, context) {}

// ---- what the program's threads do ----

Answer AutoSink::before(Call& call) noexcept try {
  recording_.attach(t_recorded);  // of a call that has never come back
  Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::replaying && is_op(call.kind) && call.traced && ++t_ops >= kOpsPerCheck) {
    t_ops = 0;
    check_whether_it_matches();
    phase = phase_.load(std::memory_order_acquire);
  }
  if (phase == Phase::recording && options_.wait.count() > 0) {
    const Recordings::Use recording = recording_.use();
    if (recording) {
      const std::uint64_t target = recording->target.load(std::memory_order_relaxed);
      // A full recording counts no more calls.
      const bool is_due = recording->recorder.calls() >= target || recording->store->full();
      if (is_due && recording->waited_for.load(std::memory_order_relaxed) != target) wait_for_look(*recording);
    }
    phase = phase_.load(std::memory_order_acquire);
  }
  if (phase == Phase::ready) {
    take_over();
    phase = phase_.load(std::memory_order_acquire);
  }
  if (phase == Phase::replaying) return replaying_.load(std::memory_order_acquire)->before(call);
  if (phase == Phase::aside) return std::nullopt;
  if (CallHistory::matters(call)) {
    history_.prepare();
    std::unique_lock lock(mutex_);
    if (handed_over_) {  // just now
      lock.unlock();
      return replaying_.load(std::memory_order_acquire)->before(call);
    }
    history_.before(call);
  }
  look(call);
  if (phase != Phase::recording) return std::nullopt;
  Recordings::Use recording = recording_.use();
  if (!recording) return std::nullopt;
  if (call.traced && !recording->watched.load(std::memory_order_relaxed) && !recording->watched.exchange(true))
    start_thread(recording);
  auto answer = recording->recorder.before(call);
  t_recorded = std::move(recording).detach();
  return answer;
} catch (const std::exception& error) {
  stand_aside(error.what());
  return std::nullopt;
}

void AutoSink::after(const Call& call, CUresult result) noexcept try {
  if (call.kind == CallKind::context_end) {
    const std::lock_guard lock(mutex_);
    for (ReplaySink* const retired : retired_) retired->after(call, result);
  }
  const Recordings::Use recorded = recording_.attach(t_recorded);
  const Phase phase = phase_.load(std::memory_order_acquire);
  // Replay also hears of calls that were in flight when it took over: of what they allocated, for instance.
  if (phase == Phase::replaying) return replaying_.load(std::memory_order_acquire)->after(call, result);
  if (phase == Phase::aside) return;
  onlookers_.passed(call, result);
  if (CallHistory::matters(call)) {
    history_.prepare();
    std::unique_lock lock(mutex_);
    if (handed_over_) {
      lock.unlock();
      return replaying_.load(std::memory_order_acquire)->after(call, result);
    }
    history_.after(call, result);
  }
  if (phase == Phase::recording && recorded && recording_.is_present(recorded)) recorded->recorder.after(call, result);
} catch (const std::exception& error) {
  stand_aside(error.what());
}

CUresult AutoSink::told(const Call& call, CUresult result) noexcept {
  ReplaySink* const replay = replaying_.load(std::memory_order_acquire);
  return replay && phase_.load(std::memory_order_acquire) == Phase::replaying ? replay->told(call, result) : result;
}

bool AutoSink::give_back(const Call& call) noexcept {
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::replaying) return replaying_.load(std::memory_order_acquire)->give_back(call);
  const Recordings::Use recording = recording_.use();
  if (recording && (recording->recorder.give_back(call) || recording->is_broken())) {
    stand_aside(kHostIsFull);
    return true;
  }
  return gave_way_.exchange(false);  // it may have ended while the driver refused this call
}

void AutoSink::mark(bool begins, const char* name, std::uint32_t thread) noexcept {
  if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::recording)
    if (const Recordings::Use recording = recording_.use()) recording->recorder.mark(begins, name, thread);
  if (phase == Phase::replaying) replaying_.load(std::memory_order_acquire)->mark(begins, name, thread);
}

void AutoSink::wait_for_look(const Recording& recording) const {
  const NotCancelled not_cancelled;
  const std::uint64_t target = recording.target.load(std::memory_order_relaxed);
  Patience patience(options_.wait);
  const auto goes_on = [&] {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase == Phase::analyzing ||
           (phase == Phase::recording && recording.target.load(std::memory_order_relaxed) == target);
  };
  while (goes_on() && patience.sleep(std::chrono::milliseconds(1))) {
  }
  // Do not wait again at every call for a look that takes longer or never comes.
  if (goes_on()) recording.waited_for.store(target, std::memory_order_relaxed);
}

// Replay has to know what may still be running when it takes over, and in what order; and what a replay that has ended
// left behind may be running.
void AutoSink::look(Call& call) {
  if (onlookers_.passes_unseen(call) || !Onlookers::matters(call)) return;
  Onlookers::Works met;
  onlookers_.passes(call, met);
  if (!met.empty()) onlookers_.wait_for(met);
}

// Takes over at this call, or not yet: every capture must have ended, since there is no way to ask which streams have
// joined one.
void AutoSink::take_over() {
  onlookers_.wait_for(onlookers_.running());  // no work of an ended replay may run alongside the next one
  const std::lock_guard lock(mutex_);
  if (phase_.load(std::memory_order_relaxed) != Phase::ready || history_.capturing()) return;
  ReplaySink* const replay = replaying_.load(std::memory_order_acquire);
  replay->take_over(history_.calls());
  handed_over_ = true;
  idle_checks_.begin(replay->steps_matched());
  Phase ready = Phase::ready;
  phase_.compare_exchange_strong(ready, Phase::replaying, std::memory_order_acq_rel);
}

void AutoSink::check_whether_it_matches() {
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || phase_.load(std::memory_order_relaxed) != Phase::replaying) return;
    if (!idle_checks_.is_idle(replaying_.load()->steps_matched())) return;
    if (recordings_ >= options_.most_recordings) return;
  }
  // Looks its driver functions up without our lock.
  auto next = std::make_unique<Recording>(options_.limit_bytes, context_);
  Call first = CallHistory::unrecorded();
  next->recorder.before(first);
  next->recorder.after(first, CUDA_SUCCESS);
  record_again(std::move(next));
}

// A recording that is no longer wanted is destroyed without the lock.
void AutoSink::record_again(std::unique_ptr<Recording> next) {
  const std::lock_guard lock(mutex_);
  if (phase_.load(std::memory_order_relaxed) != Phase::replaying) return;
  ReplaySink* const replay = replaying_.load();
  const auto alive = replay->retire();
  if (!alive) return;
  counted_ = replay->report().counters;
  history_.restart(*alive);
  handed_over_ = false;
  for (Call& call : history_.calls_to_record()) {
    next->recorder.before(call);
    next->recorder.after(call, CUDA_SUCCESS);
  }
  ++recordings_;
  retired_.push_back(replay);
  recording_.put(std::move(next));
  phase_.store(Phase::recording, std::memory_order_release);
  options_.log(ReplayLog::info, "auto: the step no longer occurs, so it is recorded again");
}

void AutoSink::start_thread(const Recordings::Use& recording) {
  // Opened here, inside a driver call (program_turn.h).
  open_log();
  try {
    rules_.get();
  } catch (const std::exception&) {  // the analysis will say so
  }
  if (start_own_thread([this, mine = recording.another()]() mutable { work(std::move(mine)); })) return;
  recording->watched = false;  // else standing aside would leave its end to that thread
  stand_aside("the thread that looks for a step cannot be started");
}

// ---- what the background thread does ----

void AutoSink::work(Recordings::Use recording) noexcept {
  try {
    options_.enter_helper_thread();
    ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNicer);  // of this thread only
    look_for_step(*recording);
  } catch (const std::exception& error) {
    stand_aside(error.what());
  }
  recording->store->drop();
  recording->recorder.finish();
  recording_.end(recording);
}

void AutoSink::look_for_step(Recording& recording) {
  int more_looks = kLooksForOtherKinds;
  std::uint32_t refused = 0;
  while (phase_.load(std::memory_order_acquire) == Phase::recording) {
    if (recording.is_broken()) {
      gave_way_ = true;
      return stand_aside("the recording cannot be kept");
    }
    const std::uint64_t calls = recording.recorder.calls();
    if (calls < recording.target && !recording.store->full()) {
      std::this_thread::sleep_for(kLookEvery);
      continue;
    }
    // The recorder's own thread writes what has been pushed so far.
    const std::uint64_t pushed = recording.recorder.pushed();
    while (recording.recorder.written() < pushed && !recording.store->full() && !recording.is_broken() &&
           phase_.load(std::memory_order_acquire) == Phase::recording)
      std::this_thread::sleep_for(kLookEvery);
    const bool last = recording.store->full();
    Trial trial(recording.store->text(), &rules_, options_.trust);
    const std::string recorded = std::to_string(calls) + " calls recorded";
    if (!trial.find_step()) {
      state_.say(recorded + ", and no step found yet: " + trial.why_not());
    } else if (!last && trial.explained() < kExplainsEnough && more_looks-- > 0) {
      state_.say(recorded + "; " + trial.step_text() + ", and much else");
    } else {
      // Recording goes on meanwhile: what repeats during a program's set-up may have no schedule, and its step may
      // still be to come.
      state_.say("analyzing " + trial.step_text());
      const auto begin = std::chrono::steady_clock::now();
      const std::string text = trial.schedule();
      const auto took = std::chrono::steady_clock::now() - begin;
      const std::string what = recorded + "; " + trial.step_text();
      if (!text.empty())
        return replay_by(recording, text,
                         what + ", analyzed in " +
                             std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
                             " ms",
                         trial.beliefs());
      const std::string why = trial.step_text() + ", but no schedule: " + trial.why_not();
      if (last || ++refused == options_.most_recordings) return stand_aside(why);
      state_.say(recorded + "; " + why);
      more_looks = kLooksForOtherKinds;
    }
    if (last)
      return stand_aside("no step was found in " + std::to_string(options_.limit_bytes >> 20) +
                         " MiB of trace (NIMBLE_AUTO_LIMIT): " + trial.why_not());
    recording.target = 2 * std::max(recording.target.load(), calls);
  }
}

void AutoSink::replay_by(Recording& recording, const std::string& schedule, const std::string& what,
                         const std::string& beliefs) {
  Phase phase = Phase::recording;
  if (!phase_.compare_exchange_strong(phase, Phase::analyzing, std::memory_order_acq_rel)) return;
  recording.store->drop();
  recording.recorder.finish();
  CounterValues counted = counted_;
  counted.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  counted.recordings = recordings_.load(std::memory_order_relaxed);
  auto replay = options_.replay(schedule, counted, onlookers_);
  if (!replay->load()) {
    state_.say(replay->report().reason);
    phase_.store(Phase::aside, std::memory_order_release);
    return;
  }
  options_.log(ReplayLog::info, "auto: " + what);
  if (!beliefs.empty()) std::call_once(beliefs_told_, options_.log, ReplayLog::info, "auto: " + beliefs);
  replaying_.store(replay.release(), std::memory_order_release);
  phase = Phase::analyzing;
  phase_.compare_exchange_strong(phase, Phase::ready, std::memory_order_acq_rel);
}

// The first thread to come does it; not once there is something to replay.
void AutoSink::stand_aside(std::string_view why) noexcept try {
  const MemoryReserve reserve;  // else nobody is told where there is no memory
  const std::lock_guard lock(aside_mutex_);
  for (const Phase from : {Phase::recording, Phase::analyzing}) {
    Phase phase = from;
    if (!phase_.compare_exchange_strong(phase, Phase::aside, std::memory_order_acq_rel)) continue;
    if (const Recordings::Use recording = recording_.use()) {
      recording->store->drop();
      if (!recording->watched.exchange(true)) recording_.end(recording);  // no one else does
    }
    state_.say(std::string(why));
    options_.log(ReplayLog::warning, "auto stops: " + std::string(why) + ". The program continues without Nimble.");
  }
} catch (...) {
}

// ---- what both do ----

SinkReport AutoSink::report() {
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::replaying) return replaying_.load(std::memory_order_acquire)->report();
  SinkReport report;
  report.phase = phase == Phase::recording ? SinkPhase::recording
                 : phase == Phase::aside   ? SinkPhase::aside
                                           : SinkPhase::analyzing;
  if (const std::string* const said = state_.last()) report.reason = *said;
  {
    const std::lock_guard lock(mutex_);
    report.counters = counted_;
  }
  report.counters.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  report.counters.recordings = recordings_.load(std::memory_order_relaxed);
  return report;
}

void AutoSink::finish() noexcept try {
  Phase last = phase_.load(std::memory_order_acquire);
  do {
    if (last == Phase::replaying) return replaying_.load(std::memory_order_acquire)->finish();
  } while (!phase_.compare_exchange_weak(last, Phase::aside, std::memory_order_acq_rel));
  if (finished_.exchange(true)) return;
  { const std::lock_guard said(aside_mutex_); }
  Counters counters;
  const SinkReport known = report();
  static_cast<CounterValues&>(counters) = known.counters;
  counters.stood_aside = known.reason;
  if (last != Phase::aside) {
    if (const Recordings::Use recording = recording_.use()) {
      recording->store->drop();
      recording->recorder.finish();
      if (recording->recorder.calls() == 0) return;  // the process has not used the GPU
    }
    counters.stood_aside = "the program ended before replay began";
    options_.log(ReplayLog::info,
                 "auto: " + counters.stood_aside + (known.reason.empty() ? std::string() : ": " + known.reason));
  }
  if (counters.steps_replayed + counters.steps_passed_through > 0) options_.log(ReplayLog::info, counters.line());
  if (options_.stats_path.empty()) return;
  if (const std::string said = counters.write(options_.stats_path); !said.empty())
    options_.log(ReplayLog::warning, said);
} catch (...) {
}

bool AutoSink::forked() noexcept {
  const Recordings::Use recording = recording_.use();
  return phase_.load(std::memory_order_acquire) == Phase::recording && recordings_.load() == 1 && recording &&
         recording->recorder.forked();
}

}  // namespace nimble::shim
