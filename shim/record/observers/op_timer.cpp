#include "shim/record/observers/op_timer.h"

#include <utility>

#include "shim/driver/dlsym_hook.h"
#include "shim/driver/guard.h"
#include "shim/process/log.h"

namespace nimble::shim {

namespace {

// CUPTI numbers calls from 1 in 32 bits; this bit marks tickets of the event timer.
constexpr std::uint64_t kOfEvents = std::uint64_t{1} << 63;

constexpr const char* kGraphs =
    "the program makes CUDA graphs, whose launches can fault while CUPTI traces them: times are taken by events";

constexpr const char* kGaveWay =
    "another profiler in the program has taken CUPTI over: times are taken by events, and calls are not counted";

std::atomic<OpTimer*> g_has_cupti{nullptr};  // a process has room for one

}  // namespace

OpTimer::OpTimer(Timing timing, bool coverage, CallContext& context)
    : timing_(timing), coverage_(coverage), context_(context) {}

bool OpTimer::takes_time(CallKind kind) {
  return kind == CallKind::launch || kind == CallKind::copy || kind == CallKind::set ||
         kind == CallKind::graph_launch || kind == CallKind::opaque;
}

// Any graph in use was captured, instantiated or launched by one of these calls.
bool OpTimer::makes_graphs(const Call& call) {
  return call.kind == CallKind::capture_begin || call.kind == CallKind::graph_launch ||
         call.graph.edit == GraphEdit::instantiate;
}

bool OpTimer::start(const Times& times_go_to) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(started_, true)) return false;
  // Looked up now: later (give_way) the dynamic loader's lock may be held by a thread that waits for ours.
  if (timing_ != Timing::none) events_ = std::make_unique<EventTimer>(context_, times_go_to);
  if (timing_ == Timing::events) use_events();
  if (timing_ == Timing::cupti && graphs_.load(std::memory_order_relaxed)) {
    why_source_ = kGraphs;
    use_events();
  }
  const bool times = timing_ == Timing::cupti && source_ == TimeSource::none;
  if (!coverage_ && !times) {
    why_not_counted_ = "NIMBLE_COVERAGE=off";
    return false;
  }
  int version = 0;
  const auto ask = reinterpret_cast<decltype(&::cuDriverGetVersion)>(context_.driver_symbol("cuDriverGetVersion"));
  if (ask) ask(&version);
  cupti_ = std::make_unique<CuptiProfiler>(CuptiProfiler::Options{times, times_go_to});
  why_not_counted_ = cupti_->start(version);
  if (times) {
    if (why_not_counted_.empty()) source_ = TimeSource::cupti;
    why_source_ = why_not_counted_;
  }
  const bool is_there = why_not_counted_.empty();
  if (is_there) {
    g_has_cupti.store(this, std::memory_order_release);
    g_on_cupti_client.store(&OpTimer::give_way, std::memory_order_release);
  }
  if (is_there && !coverage_) why_not_counted_ = "NIMBLE_COVERAGE=off";
  return is_there;
}

void OpTimer::use_events() {
  if (!events_->why_not().empty()) {
    log(LogLevel::warning, "times cannot be taken by events: the driver has no " + events_->why_not());
    return;
  }
  source_ = source_ == TimeSource::cupti ? TimeSource::cupti_then_events : TimeSource::events;
  timer_.store(events_.get(), std::memory_order_release);
}

// Other threads about to make a graph wait here until CUPTI has stopped.
void OpTimer::graph_comes() {
  const std::lock_guard lock(mutex_);
  if (graphs_.load(std::memory_order_relaxed)) return;
  if (source_ == TimeSource::cupti && !stopped_ && !gave_way_) {
    cupti_->stop_times();
    why_source_ = kGraphs;
    use_events();
    log(LogLevel::info, kGraphs);
  }
  graphs_.store(true, std::memory_order_release);
}

void OpTimer::give_way() noexcept try {
  if (OpTimer* const timer = g_has_cupti.exchange(nullptr, std::memory_order_acq_rel)) timer->let_go();
} catch (...) {  // out of memory: CUPTI is released without a message
}

void OpTimer::let_go() {
  const Guard guard;
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  cupti_->stop();
  gave_way_ = true;
  if (coverage_) why_not_counted_ = "another profiler in the program has taken CUPTI over";
  if (source_ == TimeSource::cupti) {
    why_source_ = kGaveWay;
    use_events();
  }
  log(LogLevel::info, kGaveWay);
}

void OpTimer::before(const Call& call, std::uint64_t seq, const std::atomic<bool>& any_captures) {
  EventTimer* const timer = timer_.load(std::memory_order_acquire);
  if (timer && call.kind == CallKind::context_end) timer->context_ends();
  if (timer && takes_time(call.kind) && !any_captures.load(std::memory_order_relaxed))
    timer->begin(call, seq | kOfEvents);
}

void OpTimer::after(const Call& call, CUresult result, std::uint64_t seq, Observed& observed) {
  EventTimer* const timer = timer_.load(std::memory_order_acquire);
  if (timer && takes_time(call.kind) && timer->end(call, result == CUDA_SUCCESS)) observed.ticket = seq | kOfEvents;
}

void OpTimer::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  OpTimer* own = this;
  g_has_cupti.compare_exchange_strong(own, nullptr);
  if (EventTimer* const timer = timer_.load(std::memory_order_acquire)) timer->stop();
  if (cupti_) cupti_->stop();
}

void OpTimer::sum_up(Summary& summary) const {
  const std::lock_guard lock(mutex_);
  Coverage& coverage = summary.coverage;
  if (cupti_ && why_not_counted_.empty()) coverage = cupti_->coverage();
  coverage.why_not = why_not_counted_;
  coverage.times = source_;
  coverage.why_times = why_source_;
}

}  // namespace nimble::shim
