#include "replayer/replayer.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "replayer/schedule_reader.h"
#include "replayer/step_player.h"
#include "replayer/watchdog.h"

namespace nimble {

namespace {

class Replayer final : public CallSink {
 public:
  Replayer(ReplayOptions options, CallContext& context) : options_(std::move(options)), context_(context) {}

  std::optional<CUresult> before(Call& call) noexcept override try {
    if (phase_.load(std::memory_order_acquire) == Phase::nothing) return std::nullopt;
    std::lock_guard lock(mutex_);
    if (phase_.load(std::memory_order_relaxed) == Phase::waiting) {
      if (!call.traced) return std::nullopt;
      if (!load()) return std::nullopt;
    }
    if (phase_.load(std::memory_order_relaxed) == Phase::aside) return player_->before_aside(call);
    ++calls_;
    if (pending_error_ != CUDA_SUCCESS && is_op(call.kind) && call.traced)
      return std::exchange(pending_error_, CUDA_SUCCESS);
    const auto answer = player_->before(call);
    publish();
    return answer;
  } catch (const std::exception& error) {
    give_up(error.what());
    return std::nullopt;
  }

  void after(const Call& call, CUresult result) noexcept override try {
    // Most calls that passed change nothing here: no lock for them.
    const bool matters = call.kind == CallKind::alloc || call.kind == CallKind::alloc_async ||
                         call.kind == CallKind::capture_begin || call.kind == CallKind::capture_end ||
                         (result != CUDA_SUCCESS && is_op(call.kind));
    if (!call.traced || !matters || phase_.load(std::memory_order_acquire) != Phase::playing) return;
    std::lock_guard lock(mutex_);
    player_->after(call, result);
  } catch (const std::exception& error) {
    give_up(error.what());
  }

  void finish() noexcept override try {
    std::lock_guard lock(mutex_);
    // Work that is held now was never waited for: the process ends without anybody seeing whether it ran.
    const Phase last = phase_.exchange(Phase::nothing);
    activity_.store(0, std::memory_order_release);
    if (last == Phase::waiting || last == Phase::nothing) return;
    options_.log(ReplayLog::info, counters_.line());
    if (!options_.stats_path.empty() && !counters_.write(options_.stats_path)) {
      options_.log(ReplayLog::warning,
                   options_.stats_path + ": the counters cannot be written there. Set NIMBLE_STATS to another file.");
    }
  } catch (...) {
  }

 private:
  enum class Phase : std::uint8_t {
    waiting,  // no call that matters has come yet
    playing,
    aside,    // replay has given up; memory that it served is still looked after
    nothing,  // everything passes
  };

  bool load() {
    try {
      Schedule schedule = read_schedule(options_.schedule_path);
      if (const char* missing = driver_.load(context_)) {
        phase_ = Phase::nothing;
        options_.log(ReplayLog::warning, std::string("the driver has no ") + missing +
                                             ": replay needs CUDA 12. The program runs untouched.");
        return false;
      }
      const std::size_t ops = schedule.ops.size(), segments = schedule.segments.size();
      player_ = std::make_unique<StepPlayer>(std::move(schedule), context_, driver_, counters_);
      options_.log(ReplayLog::info, options_.schedule_path + ": a step of " + std::to_string(ops) + " ops in " +
                                        std::to_string(segments) + (segments == 1 ? " graph" : " graphs"));
    } catch (const ScheduleError& error) {
      phase_ = Phase::nothing;
      options_.log(ReplayLog::warning, std::string(error.what()) + ". The program runs untouched.");
      return false;
    }
    watchdog_ = std::make_unique<Watchdog>(
        options_.hold, [this] { return activity_.load(std::memory_order_acquire); },
        [this](std::uint64_t seen) { hold_expired(seen); }, options_.enter_helper_thread);
    phase_.store(Phase::playing, std::memory_order_release);
    return true;
  }

  // After every call: what the watchdog looks at, and whether replay goes on.
  void publish() {
    const bool holding = player_->holding();
    activity_.store(holding ? calls_ : 0, std::memory_order_release);
    if (holding) watchdog_->wake();
    if (player_->stood_aside().empty()) return;
    phase_.store(Phase::aside, std::memory_order_release);
    if (player_->ended()) return;
    counters_.stood_aside = player_->stood_aside();
    options_.log(ReplayLog::warning,
                 "replay stands aside: " + counters_.stood_aside + ". The program goes on as without Nimble.");
  }

  void hold_expired(std::uint64_t seen) noexcept try {
    std::lock_guard lock(mutex_);
    if (phase_.load(std::memory_order_relaxed) != Phase::playing || activity_.load(std::memory_order_relaxed) != seen)
      return;
    const CUresult result = player_->flush();
    if (result != CUDA_SUCCESS) pending_error_ = result;
    ++counters_.watchdog_flushes;
    publish();
  } catch (const std::exception& error) {
    give_up(error.what());
  }

  // Something of ours failed, memory most likely. What is held cannot be lost: it goes out as it came.
  void give_up(const char* what) noexcept {
    try {
      std::lock_guard lock(mutex_);
      if (player_) player_->flush();
      phase_.store(player_ ? Phase::aside : Phase::nothing, std::memory_order_release);
      counters_.stood_aside = what;
      options_.log(ReplayLog::warning, std::string("replay stands aside: ") + what);
    } catch (...) {
      phase_.store(Phase::nothing, std::memory_order_release);
    }
  }

  const ReplayOptions options_;
  CallContext& context_;
  std::atomic<Phase> phase_{Phase::waiting};
  std::atomic<std::uint64_t> activity_{0};  // calls_ while ops are held, else 0
  std::mutex mutex_;                        // guards all below
  DriverApi driver_;
  Counters counters_;
  std::unique_ptr<StepPlayer> player_;
  std::unique_ptr<Watchdog> watchdog_;
  std::uint64_t calls_ = 0;
  CUresult pending_error_ = CUDA_SUCCESS;
};

}  // namespace

std::unique_ptr<CallSink> make_replayer(ReplayOptions options, CallContext& context) {
  return std::make_unique<Replayer>(std::move(options), context);
}

}  // namespace nimble
