#include "shim/modes/region_sink.h"

#include <algorithm>
#include <utility>

#include "analyzer/service.h"
#include "nimble/internal/launch_params.h"
#include "nimble/internal/process/memory_reserve.h"
#include "replayer/driver/current_context.h"
#include "replayer/schedule/schedule_reader.h"
#include "shim/rewrite/context_wait.h"
#include "shim/state/stream_ref.h"

namespace nimble::shim {

namespace {

constexpr const char* kContextEnded = "its context has ended";

// The region that this thread records, if any; and whether before() passed the call to its recorder.
thread_local ProgramRegion* t_region __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local bool t_recorded __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

RegionSink::RegionSink(RegionOptions options, CallContext& context)
    : options_(std::move(options)), rules_(options_.rules), context_(context), onlookers_(context), history_(context) {}

// ---- the program's driver calls ----

Answer RegionSink::before(Call& call) noexcept try {
  t_recorded = false;
  if (call.kind == CallKind::context_end) wait_for_helper(call.context);
  if (CallHistory::matters(call) || call.ends != Ends::nothing || call.kind == CallKind::context_end) {
    history_.prepare();
    const std::lock_guard lock(mutex_);
    history_.before(call);
    // Counts before the regions are marked: what is launched from now on is.
    captures_.store(history_.capturing());
    goes(call);
  }
  if (ProgramRegion* const region = t_region) {
    region->recorder_->before(call);
    t_recorded = true;
  }
  look(call);
  return std::nullopt;
} catch (const std::exception& error) {
  if (t_region) t_region->becomes(ProgramRegion::State::refused, error.what());
  return std::nullopt;
}

void RegionSink::after(const Call& call, CUresult result) noexcept try {
  onlookers_.passed(call, result);
  if (CallHistory::matters(call)) {
    const std::lock_guard lock(mutex_);
    history_.after(call, result);
    captures_.store(history_.capturing());
  }
  if (call.kind == CallKind::context_end && result == CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    const auto is_of_it = [&](const ProgramRegion& one) { return !call.context || call.context == one.cu_context_; };
    for (ProgramRegion* const region : regions_)
      if (is_of_it(*region) && region->work_ && is_end_of_context(call)) region->work_->context_goes();
    go_stale(kContextEnded, is_of_it);
  }
  if (!t_recorded || !t_region) return;
  t_region->recorder_->after(call, result);
  note(call, result);
} catch (const std::exception& error) {
  if (t_region) t_region->becomes(ProgramRegion::State::refused, error.what());
}

bool RegionSink::give_back(const Call& call) noexcept try {
  ProgramRegion* const mine = t_region;
  // Or it has ended while the driver refused this call.
  const bool gives = mine && !mine->gave_way_ && (mine->recorder_->give_back(call) || mine->is_broken());
  if (!gives) return give_graphs_back(call);
  const MemoryReserve reserve;
  mine->gave_way_ = true;
  mine->becomes(ProgramRegion::State::refused, kHostIsFull);
  mine->store_->drop();
  return true;
} catch (const std::exception&) {
  return false;
}

// The driver is about to have the call. Where its op must not run at the same time as regions in our order, it waits
// for these, which keep the program's order from then on.
void RegionSink::look(Call& call) {
  if (onlookers_.passes_unseen(call) || !Onlookers::matters(call)) return;
  Onlookers::Works met;
  onlookers_.passes(call, met);
  if (!met.empty()) keep(met);
}

void RegionSink::keep(const Onlookers::Works& met) {
  onlookers_.wait_for(met);
  const std::lock_guard lock(mutex_);
  for (ProgramRegion* const region : regions_)
    if (met.has(region->work_.get())) region->in_program_order_.store(true, std::memory_order_release);
}

// Notes what the region needs to know of the call beyond its trace.
void RegionSink::note(const Call& call, CUresult result) {
  ProgramRegion& region = *t_region;
  const auto refuse = [&](const std::string& why) {
    region.becomes(ProgramRegion::State::refused, std::string(call.symbol) + ": " + why);
  };
  if (call.host == HostEffect::observe) return refuse("the host looks at what the GPU has done");
  if (call.ends != Ends::nothing) return refuse("something ends in the region");
  if (!call.traced) return;
  if (result != CUDA_SUCCESS) return refuse("error " + std::to_string(result));
  switch (call.kind) {
    case CallKind::capture_begin:
    case CallKind::capture_end:
    case CallKind::hidden:
    case CallKind::context_end:
      return refuse("is of a kind that a graph cannot hold");
    default:
      break;
  }
  RegionCall kept;
  kept.call = call;
  kept.call.launch.kernel_params = kept.call.launch.extra = nullptr;
  kept.call.launch.attributes = nullptr;
  kept.call.list_accesses = nullptr;
  kept.call.arguments = {};
  if (call.kind == CallKind::launch) {
    const FunctionInfo& function = context_.function(call.launch.function);
    kept.params.resize(function.param_bytes);
    if (function.param_bytes && !pack_params(call, function, kept.params.data()))
      return refuse("its parameters cannot be read");
  }
  region.calls_.push_back(std::move(kept));
}

// What regions depend on, before the driver releases it.
void RegionSink::goes(const Call& call) {
  switch (call.ends) {
    case Ends::nothing:
      break;
    case Ends::event:
      return go_stale("an event that it records was destroyed",
                      [&](const ProgramRegion& one) { return one.region_ && one.region_->records(call.event); });
    case Ends::code:
      return go_stale("code was unloaded", [](const ProgramRegion&) { return true; });
    case Ends::stream:
      return mark(&call.stream);
    case Ends::green_context:
      return mark(nullptr);
  }
  // A capture may come to any stream.
  if (call.kind == CallKind::capture_begin || call.kind == CallKind::context_end) return mark(nullptr);
  if (call.kind != CallKind::free && call.kind != CallKind::free_async) return;
  go_stale("memory that it uses was released", [&](const ProgramRegion& one) {
    if (!one.region_) return false;
    const auto in = [&](std::uint64_t base) {
      return base == call.memory.address ||
             (base - call.memory.address < call.memory.size && base > call.memory.address);
    };
    if (one.region_->uses_all())
      return std::any_of(one.earlier_.begin(), one.earlier_.end(),
                         [&](const Call& old) { return in(old.memory.address); });
    const auto& memory = one.region_->memory();
    return std::any_of(memory.begin(), memory.end(), [&](const RegionMemory& used) { return in(used.base); });
  });
}

// Under the lock.
void RegionSink::mark(const StreamRef* stream) {
  for (ProgramRegion* const region : regions_) {
    if (!region->work_) continue;
    onlookers_.close_gate(*region->work_);  // a launch by it is made, or is not
    region->work_->mark(stream);
  }
}

// Under the lock.
void RegionSink::go_stale(const char* why, const std::function<bool(const ProgramRegion&)>& which) {
  for (ProgramRegion* const region : regions_)
    if (region != t_region && which(*region)) region->becomes(ProgramRegion::State::stale, why);
}

// ---- regions ----

ProgramRegion* RegionSink::begin() {
  if (t_region) return nullptr;
  if (!loaded_.load(std::memory_order_acquire)) {
    DriverApi driver;
    if (driver.load(context_, false)) return nullptr;
    const std::lock_guard lock(mutex_);
    if (!loaded_.load(std::memory_order_relaxed)) driver_ = driver;
    loaded_.store(true, std::memory_order_release);
  }
  CUcontext current = nullptr;
  if (driver_.cuCtxGetCurrent_(&current) != CUDA_SUCCESS || !current) return nullptr;
  auto region = std::make_unique<ProgramRegion>(options_.limit_bytes, context_);
  region->cu_context_ = current;
  history_.prepare();
  {
    const std::lock_guard lock(mutex_);
    region->earlier_ = history_.calls();
    if (history_.capturing()) return nullptr;
    regions_.push_back(region.get());
  }
  // As if the process had been recorded from its start, except that its past work is unknown: it may have been
  // anything.
  const std::uint32_t thread = thread_index();
  const auto record = [&](Call call) {
    call.thread = thread;
    region->recorder_->before(call);
    region->recorder_->after(call, CUDA_SUCCESS);
  };
  for (const Call& call : region->earlier_) record(call);
  record(CallHistory::unrecorded());
  region->recorder_->mark(true, nullptr, thread);
  t_region = region.get();
  recorded_.fetch_add(1, std::memory_order_relaxed);
  return region.release();
}

bool RegionSink::end(ProgramRegion& region) {
  if (t_region != &region) return false;
  t_region = nullptr;
  recorded_.fetch_sub(1, std::memory_order_relaxed);
  region.open_ = false;
  region.recorder_->mark(false, nullptr, thread_index());
  region.recorder_->finish();
  region.recorder_.reset();  // no other thread's calls come through it
  if (region.store_->full()) region.becomes(ProgramRegion::State::refused, "it is too long to be recorded");
  if (region.state() == ProgramRegion::State::recording) region.becomes(ProgramRegion::State::recorded, {});
  return true;
}

bool RegionSink::compile(ProgramRegion& region) {
  if (region.state() == ProgramRegion::State::compiled) return true;
  if (region.state() != ProgramRegion::State::recorded) return false;
  const auto refuse = [&](const std::string& why) {
    region.becomes(ProgramRegion::State::refused, why);
    return false;
  };
  const std::vector<std::uint8_t> lasts = lasting(region.calls_);
  std::vector<std::uint64_t> kept;  // addresses
  for (std::size_t i = 0; i < region.calls_.size(); ++i)
    if (lasts[i]) kept.push_back(region.calls_[i].call.memory.address);
  const RegionSchedule found = region_schedule(region.store_->text(), kept, rules_, options_.trust);
  region.store_->drop();
  if (found.text.empty()) return refuse(found.why_not);
  const CurrentContext current(driver_, region.cu_context_);  // also while a failed build is torn down
  auto built = std::make_unique<RegionGraph>(context_, driver_);
  std::string why_not;
  try {
    why_not = built->build(parse_schedule(found.text, "a region"), region.earlier_, region.calls_);
  } catch (const ScheduleError& error) {
    why_not = error.what();
  }
  if (!why_not.empty()) return refuse(why_not);
  const std::lock_guard lock(mutex_);
  // Memory released since it was recorded has not been checked against it yet.
  const std::vector<Call> now = history_.calls();
  const auto alive = [&](std::uint64_t base) {
    return std::any_of(now.begin(), now.end(),
                       [&](const Call& call) { return call.kind == CallKind::alloc && call.memory.address == base; });
  };
  region.region_ = std::move(built);
  region.has_two_orders_ = region.region_->has_two_orders();
  region.work_ = std::make_shared<RegionWork>(driver_, region.cu_context_, region.region_->records_any());
  onlookers_.uses(region.work_, region.region_->touches(), region.region_->touches_variables(),
                  region.region_->uses_all());
  bool all_there = true;
  for (const RegionMemory& used : region.region_->memory()) all_there = all_there && alive(used.base);
  if (region.region_->uses_all())
    for (const Call& call : region.earlier_)
      all_there = all_there && (call.kind != CallKind::alloc || alive(call.memory.address));
  if (!all_there) {
    region.becomes(ProgramRegion::State::stale, "memory that it uses was released");
    return false;
  }
  region.becomes(ProgramRegion::State::compiled, {});
  if (!found.beliefs.empty()) std::call_once(beliefs_told_, options_.log, "regions: " + found.beliefs);
  return region.state() == ProgramRegion::State::compiled;
}

bool RegionSink::destroy(ProgramRegion* region) {
  if (t_region == region) {
    t_region = nullptr;
    recorded_.fetch_sub(1, std::memory_order_relaxed);
  } else if (region->open_) {
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase(regions_, region);
    launches_.fetch_add(region->by_gate_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  const bool context_ended = region->why() == kContextEnded;
  if (context_ended && region->region_) region->region_->abandon();
  const CurrentContext current(driver_, region->cu_context_);
  if (region->work_) {
    region->work_->mark();
    onlookers_.leave(region->work_);
  }
  delete region;
  return true;
}

// ---- the rest ----

void RegionSink::mark(bool begins, const char* /*name*/, std::uint32_t /*thread*/) noexcept {
  if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
}

SinkReport RegionSink::report() {
  SinkReport report;
  report.phase = recorded_.load(std::memory_order_relaxed) > 0 ? SinkPhase::recording : SinkPhase::idle;
  report.counters.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  std::uint64_t launches = launches_.load(std::memory_order_relaxed);
  for (const ProgramRegion* const region : regions_) launches += region->by_gate_.load(std::memory_order_relaxed);
  report.counters.graph_launches = launches;
  return report;
}

bool RegionSink::forked() noexcept { return false; }

}  // namespace nimble::shim
