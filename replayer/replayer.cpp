#include "replayer/replayer.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "nimble/internal/process/light_mutex.h"
#include "replayer/bind/going_arena.h"
#include "replayer/reading.h"
#include "replayer/schedule/schedule_reader.h"
#include "replayer/step/step_player.h"
#include "replayer/tuning_report.h"
#include "replayer/watchdog.h"

namespace nimble {

namespace {

constexpr const char* kNoThread = "the thread that submits held ops cannot be started";

class Replayer final : public ReplaySink {
 public:
  Replayer(ReplayOptions options, CallContext& context, Onlookers* onlookers)
      : options_(std::move(options)), context_(context), onlookers_(onlookers) {
    static_cast<CounterValues&>(counters_) = options_.counted;
    steps_marked_ = options_.counted.steps_marked;
  }

  Answer before(Call& call) noexcept override try {
    if (phase_.load(std::memory_order_acquire) == Phase::nothing) return std::nullopt;
    const bool matters = call.traced || call.asked.question == Question::pool;
    if (phase_.load(std::memory_order_acquire) == Phase::waiting && (!matters || !load(/*starts=*/true)))
      return std::nullopt;
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (phase == Phase::nothing) {
      if (bystanders_ && onlookers_) look(call, false);  // a call that comes late to a retired replay
      return std::nullopt;
    }
    const bool passes = phase == Phase::aside ? bystanders_->passes_aside(call) : bystanders_->passes(call);
    if (!passes)
      if (const Answer answer = play(call)) {
        if (call.asked.sets && call.shown && onlookers_) {  // by the answer others may look
          look(call, passes);
          onlookers_->passed(call, *answer);
        }
        return answer;
      }
    if (onlookers_) look(call, passes);
    return std::nullopt;
  } catch (const std::exception& error) {
    give_up(error.what());
    return std::nullopt;
  }

  void after(const Call& call, CUresult result) noexcept override try {
    if (bystanders_ && onlookers_ && phase_.load(std::memory_order_acquire) != Phase::waiting)
      onlookers_->passed(call, result);
    if (call.brings_code && phase_.load(std::memory_order_acquire) == Phase::playing)
      player_->memory().nearby().may_have_come();
    if (result != CUDA_SUCCESS && is_final(result)) context_failed(result);
    if (!call.traced) return;
    // Some calls turn out to matter only by the driver's answer: the first of them may be the first call of all.
    if (phase_.load(std::memory_order_acquire) == Phase::waiting) load(/*starts=*/true);
    const Phase phase = phase_.load(std::memory_order_acquire);
    const bool ended = call.kind == CallKind::context_end && result == CUDA_SUCCESS;
    if (phase == Phase::nothing && ended) {  // the arena may still be ours
      const std::lock_guard lock(mutex_);
      if (player_) player_->context_gone(call);
      return;
    }
    if (phase != Phase::playing && !(phase == Phase::aside && ended)) return;
    if (bystanders_->passed(call, result)) return;
    std::lock_guard lock(mutex_);
    bystanders_->news.drain([this](const MemoryEvent& event) { player_->note(event); });
    player_->after(call, result);
    if (ended) player_->context_gone(call);
    publish();
  } catch (const std::exception& error) {
    give_up(error.what());
  }

  CUresult told(const Call& call, CUresult result) noexcept override {
    if (!owes_.load(std::memory_order_acquire)) [[likely]]
      return result;
    std::lock_guard lock(mutex_);
    const CUresult told = player_->errors().tell(call, result);
    owes_.store(player_->errors().any(), std::memory_order_release);
    return told;
  }

  void mark(bool begins, const char* /*name*/, std::uint32_t /*thread*/) noexcept override {
    if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
  }

  SinkReport report() override {
    const std::lock_guard lock(mutex_);
    SinkReport report;
    report.counters = counters();
    report.reason = counters_.stood_aside;
    switch (phase_.load(std::memory_order_relaxed)) {
      case Phase::waiting:
        report.phase = SinkPhase::searching;
        break;
      case Phase::playing:
        report.phase = player_->bound()      ? SinkPhase::replaying
                       : player_->matching() ? SinkPhase::binding
                                             : SinkPhase::searching;
        break;
      case Phase::aside:
      case Phase::nothing:
        report.phase = SinkPhase::aside;
        break;
    }
    return report;
  }

  void finish() noexcept override try {
    std::lock_guard lock(mutex_);
    // Code that runs even later, such as a library's static destructors, must find everything submitted, and its
    // step-local memory served: so replay stands aside, and stays.
    const Phase last = phase_.load(std::memory_order_relaxed);
    if (last == Phase::waiting) phase_ = Phase::nothing;
    if (std::exchange(finished_, true)) return;
    if (last == Phase::playing) {
      if (matched() == 0 && !player_->standing().aside()) counters_.not_found = player_->why_not_found();
      player_->finish();
      publish();
      decisions_.say(player_->tuning().tuners(), counters_, options_);
      phase_ = Phase::aside;
    }
    activity_ = 0;
    static_cast<CounterValues&>(counters_) = counters();
    finished_counting_ = true;
    if (last == Phase::waiting || last == Phase::nothing) return;
    options_.log(ReplayLog::info, counters_.line());
    if (options_.tune_save) decisions_.save(player_->tuning().tuners(), options_);
    if (options_.stats_path.empty()) return;
    if (const std::string said = counters_.write(options_.stats_path); !said.empty())
      options_.log(ReplayLog::warning, said);
  } catch (...) {
  }

  bool load() override { return load(/*starts=*/false); }

  void take_over(std::span<const Call> earlier) override {
    if (!start_watchdog()) return give_up(kNoThread);
    const std::lock_guard lock(mutex_);
    for (const Call& call : earlier) player_->after(call, CUDA_SUCCESS);
    publish();
  }

  std::uint64_t steps_matched() const override { return steps_matched_.load(std::memory_order_relaxed); }

  std::optional<std::vector<Allocation>> retire() override {
    const std::lock_guard lock(mutex_);
    if (phase_.load(std::memory_order_relaxed) != Phase::playing) return std::nullopt;
    bystanders_->news.drain([this](const MemoryEvent& event) { player_->note(event); });
    if (player_->indispensable()) return std::nullopt;
    player_->finish();
    player_->give_arena_back();
    publish();
    // The last submission may have failed, and then there is an error to return.
    if (player_->indispensable() || phase_.load(std::memory_order_relaxed) != Phase::playing) {
      phase_ = Phase::aside;
      return std::nullopt;
    }
    std::vector<Allocation> alive;
    for (const auto& [base, allocation] : player_->memory().all())
      if (!allocation.arena) alive.push_back(allocation);
    player_->retire();
    phase_ = Phase::nothing;
    activity_ = 0;
    return alive;
  }

  // A step that binds again allocates another arena. If that happens repeatedly the program needs the memory more than
  // we do. Memory released in stream order is available once the GPU has got there, and the pool has released it.
  bool give_back(const Call&) noexcept override try {
    constexpr std::uint32_t kMost = 3;
    GoingArena arena;
    bool given = false;
    {
      const std::lock_guard lock(mutex_);
      if (phase_.load(std::memory_order_relaxed) != Phase::playing) return false;
      bystanders_->news.drain([this](const MemoryEvent& event) { player_->note(event); });
      given = player_->let_go_of_memory(arena);
      if (given && ++shortages_ == kMost && !player_->standing().aside()) {
        player_->standing().stand_aside("the program needs the memory");
        player_->leave();
      }
      publish();
    }
    if (arena.gone) let_pool_release(driver_, arena);
    return given;
  } catch (const std::exception& error) {
    give_up(error.what());
    return false;
  }

  bool forked() noexcept override { return phase_.load(std::memory_order_acquire) == Phase::waiting; }

 private:
  enum class Phase : std::uint8_t {
    waiting,  // no call that matters has come yet
    playing,
    aside,    // replay has given up; memory that it served is still managed
    nothing,  // everything passes
  };

  // The lock's holder may be inside the driver, waiting for the very op of the asking thread.
  bool graphs_are_through() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock && player_->onlookers().end().are_through();
  }

  Answer play(Call& call) {
    const std::lock_guard lock(mutex_);
    const Phase phase = phase_.load(std::memory_order_relaxed);
    if (phase != Phase::playing && phase != Phase::aside) return std::nullopt;
    if (phase == Phase::playing) bystanders_->news.drain([this](const MemoryEvent& event) { player_->note(event); });
    const Answer answer = phase == Phase::aside ? player_->before_aside(call) : player_->before(call);
    publish();
    return answer;
  }

  // The call goes to the driver. If its op must not run at the same time as the step's graphs, it waits for these here:
  // without the lock, so that all else goes on. `passed_by`: Bystanders let it pass; an op was on no stream of the
  // step.
  void look(Call& call, bool passed_by) {
    const bool plays = phase_.load(std::memory_order_acquire) == Phase::playing;
    // None of our work is in flight, and none will be.
    if (!plays && own_onlookers_ && onlookers_->running().empty()) return;
    const bool apart = !passed_by && plays && bound_.load(std::memory_order_acquire) && call.has_stream &&
                       bystanders_->follows(call.stream);
    if (!onlookers_->passes_unseen(call, apart) && Onlookers::matters(call)) pass_seen(call, apart);
  }

  [[gnu::noinline]] void pass_seen(Call& call, bool apart) {
    Onlookers::Works met;
    onlookers_->passes(call, met, nullptr, apart);
    if (met.empty()) return;
    onlookers_->wait_for(met);
    const std::lock_guard lock(mutex_);
    if (phase_.load(std::memory_order_relaxed) != Phase::playing) return;
    player_->keep_program_order();
    if (player_->standing().aside()) player_->leave();
    publish();
  }

  // Including what is counted elsewhere. Under the lock; constant once replay has finished.
  CounterValues counters() const {
    CounterValues values = counters_;
    if (finished_counting_) return values;
    values.steps_marked = steps_marked_.load(std::memory_order_relaxed);
    if (bystanders_) values.ops_passed_through += bystanders_->ops();
    return values;
  }

  // There is nothing to replay. Returns false.
  bool give_in(const std::string& why, const std::string& said) {
    phase_ = Phase::nothing;
    counters_.stood_aside = why;
    options_.log(ReplayLog::warning, said + ". The program continues without Nimble.");
    return false;
  }

  // Reads the schedule and gets ready. Concurrent threads all do it; one wins. `starts`: calls come from now on.
  bool load(bool starts) {
    try {
      Reading read = read_for_replay(options_, context_);
      std::lock_guard lock(mutex_);
      if (phase_.load(std::memory_order_relaxed) != Phase::waiting) return phase_ != Phase::nothing;
      if (read.missing) {
        const std::string why = std::string("the driver has no ") + read.missing;
        return give_in(why, why + ": replay needs a driver for CUDA 12 or later");
      }
      driver_ = read.driver;
      decisions_.begin(std::move(read.place), read.file);
      auto player = std::make_unique<StepPlayer>(std::move(read.schedule), context_, driver_, counters_);
      auto bystanders = std::make_unique<Bystanders>(player->schedule(), context_);
      if (starts && !start_watchdog()) return give_in(kNoThread, kNoThread);
      player->tune(options_.tune);
      if (audits(options_, player->schedule()))
        player->audit(options_.audit, [all = bystanders.get()] { return all->ops(); });
      if (!onlookers_ && player->onlookers().runs_relaxed()) {
        own_onlookers_ = std::make_unique<Onlookers>(context_);
        onlookers_ = own_onlookers_.get();
      }
      if (onlookers_) player->onlookers().attach(*onlookers_, [this] { return graphs_are_through(); });
      // All or nothing: a thread that finds a player also finds the rest.
      player_ = std::move(player);
      bystanders_ = std::move(bystanders);
      options_.log(ReplayLog::info, options_.schedule_path + ": " + describe(player_->schedule()));
      const std::string beliefs = beliefs_text(player_->schedule());  // auto has said so, and knows more
      if (!beliefs.empty() && options_.schedule_text.empty())
        options_.log(ReplayLog::info, options_.schedule_path + ": " + beliefs);
      phase_.store(Phase::playing, std::memory_order_release);
      return true;
    } catch (const ScheduleError& error) {
      std::lock_guard lock(mutex_);
      if (phase_.load(std::memory_order_relaxed) != Phase::waiting) return phase_ != Phase::nothing;
      return give_in(error.what(), error.what());
    }
  }

  // Its thread gets the calling thread's priority. Whether it runs.
  bool start_watchdog() {
    if (watchdog_) return true;
    auto watchdog = std::make_unique<Watchdog>(
        options_.hold, [this] { return activity_.load(); }, [this](std::uint64_t seen) { hold_expired(seen); },
        options_.enter_helper_thread);
    if (!watchdog->start()) return false;
    watchdog_ = std::move(watchdog);
    return true;
  }

  // After every call: publishes what the watchdog checks, and whether replay goes on.
  void publish() {
    const std::uint64_t held = player_->holding();
    if (held && activity_.load(std::memory_order_relaxed) == 0) {
      activity_.store(held);
      watchdog_->wake();
    } else {
      activity_.store(held, std::memory_order_release);  // the watchdog does not sleep while it is not 0
    }
    bystanders_->publish(player_->state());
    if (matched() != steps_matched_.load(std::memory_order_relaxed) || player_->standing().aside() ||
        player_->standing().has_news() || player_->errors().any() != owes_.load(std::memory_order_relaxed) ||
        player_->bound() != bound_.load(std::memory_order_relaxed))
      publish_progress();
  }

  std::uint64_t matched() const { return counters_.steps_replayed + counters_.steps_passed_through; }

  // What changes once a step at most. All threads read some of it at every call, and a store costs each of them a cache
  // miss.
  [[gnu::noinline]] void publish_progress() {
    if (matched() != steps_matched_.load(std::memory_order_relaxed) || player_->standing().aside()) {
      steps_matched_.store(matched());
      decisions_.say(player_->tuning().tuners(), counters_, options_);
    }
    if (player_->standing().has_news()) options_.log(ReplayLog::info, player_->standing().take_news());
    if (player_->errors().any() != owes_.load(std::memory_order_relaxed)) owes_.store(player_->errors().any());
    if (player_->bound() != bound_.load(std::memory_order_relaxed)) bound_.store(player_->bound());
    if (!player_->standing().aside()) return;
    if (phase_.exchange(Phase::aside) == Phase::aside || player_->standing().ended()) return;
    counters_.stood_aside = player_->stood_aside();
    options_.log(ReplayLog::warning,
                 "replay stops: " + counters_.stood_aside + ". The program continues without Nimble.");
  }

  void context_failed(CUresult result) {
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (phase != Phase::playing && phase != Phase::aside) return;
    std::lock_guard lock(mutex_);
    player_->context_failed(result);
    publish();
  }

  void hold_expired(std::uint64_t seen) noexcept try {
    std::lock_guard lock(mutex_);
    if (phase_.load(std::memory_order_relaxed) != Phase::playing || activity_.load(std::memory_order_relaxed) != seen)
      return;
    player_->flush();
    if (player_->standing().aside()) player_->leave();
    ++counters_.watchdog_flushes;
    publish();
  } catch (const std::exception& error) {
    give_up(error.what());
  }

  // Our own code failed, most likely out of memory. Held ops must not be lost: submit them in their order.
  void give_up(const char* what) noexcept {
    try {
      std::lock_guard lock(mutex_);
      if (player_) player_->leave();
      phase_.store(player_ ? Phase::aside : Phase::nothing, std::memory_order_release);
      counters_.stood_aside = what;
      options_.log(ReplayLog::warning,
                   std::string("replay stops: ") + what + ". The program continues without Nimble.");
    } catch (...) {
      phase_.store(Phase::nothing, std::memory_order_release);
    }
  }

  const ReplayOptions options_;
  CallContext& context_;

  // Read by every call of every thread, rarely written: on a cache line apart from what the replaying thread writes
  // with each op.
  alignas(64) std::atomic<Phase> phase_{Phase::waiting};
  std::atomic<bool> owes_{false};           // whether StepPlayer::errors() had any
  std::atomic<bool> bound_{false};          // likewise StepPlayer::bound()
  std::unique_ptr<Bystanders> bystanders_;  // made before `playing`, then constant; needs no lock
  Onlookers* onlookers_;                    // likewise; null if everything runs in the program's order
  std::unique_ptr<Onlookers> own_onlookers_;

  alignas(64) std::atomic<std::uint64_t> activity_{0};  // what StepPlayer::holding() said last
  std::atomic<std::uint64_t> steps_marked_{0}, steps_matched_{0};
  LightMutex mutex_;  // guards all below
  DriverApi driver_;
  TuningReport decisions_;
  Counters counters_;
  std::unique_ptr<StepPlayer> player_;
  std::unique_ptr<Watchdog> watchdog_;
  bool finished_ = false, finished_counting_ = false;
  std::uint32_t shortages_ = 0;  // how often memory was short during replay
};

}  // namespace

std::unique_ptr<ReplaySink> make_replayer(ReplayOptions options, CallContext& context, Onlookers* onlookers) {
  return std::make_unique<Replayer>(std::move(options), context, onlookers);
}

}  // namespace nimble
