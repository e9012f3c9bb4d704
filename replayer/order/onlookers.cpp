#include "replayer/order/onlookers.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "nimble/internal/process/not_cancelled.h"

namespace nimble {

namespace {

constexpr std::chrono::milliseconds kMostWait{1000};
constexpr std::chrono::microseconds kBetweenLooks{20};
constexpr std::size_t kMostCaptures = 64;

bool is_looking(const Call& call) { return call.traced && call.has_stream && touches_memory(call.kind); }

// Whether it may record events that it does not name. A graph that could be analyzed records none.
bool may_record_any(const Call& call, const void* work) {
  return !work && (call.kind == CallKind::graph_launch || call.kind == CallKind::opaque);
}

// A copy to the host that the host waits for; others of which that is said may return before they are through.
bool is_waited_copy(const Call& call) {
  return call.kind == CallKind::copy && call.synchronous() && call.device_source && call.width != 0 && call.height != 0;
}

std::uint64_t number_of(CUcontext context) { return reinterpret_cast<std::uint64_t>(context) & ~std::uint64_t{3}; }

// What the call that this thread is making has said, and to whom.
struct Said {
  const Onlookers* to = nullptr;
  Onlookers::Passage passage;
};

// Of this thread, until it ends; null where memory is short. No thread-local variable: those are on the stacks of the
// program's threads, which may be small.
Said* said() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    const bool good = pthread_key_create(&made, [](void* old) { delete static_cast<Said*>(old); }) == 0;
    return good ? made : ~pthread_key_t{0};
  }();
  if (key == ~pthread_key_t{0}) return nullptr;
  if (void* const known = pthread_getspecific(key)) return static_cast<Said*>(known);
  std::unique_ptr<Said> made(new (std::nothrow) Said);
  return made && pthread_setspecific(key, made.get()) == 0 ? made.release() : nullptr;
}

}  // namespace

Onlookers::Onlookers(CallContext& context) : context_(context), touched_(StreamClocks::kMostStreams) {
  for (OfStream& each : touched_) each.parts.reserve(kMostParts);
  launched_.reserve(kMostLaunched);
  capturing_.reserve(kMostCaptures);  // so that hardly any is missed for want of memory
}

bool Onlookers::matters(const Call& call) {
  if (call.ends != Ends::nothing || call.shown) return true;
  switch (call.kind) {
    case CallKind::event_record:
    case CallKind::event_wait:
      return call.has_stream && !call.stream.is_of_graph();
    case CallKind::stream_synchronize:
    case CallKind::event_synchronize:
    case CallKind::context_synchronize:
    case CallKind::context_end:
    case CallKind::capture_begin:
    case CallKind::capture_end:
    case CallKind::free:
    case CallKind::free_async:
      return true;
    default:
      return is_looking(call) && !call.stream.is_of_graph();
  }
}

// ---- whose stream it is ----

std::uint64_t Onlookers::context_of(const StreamRef& stream) const {
  const auto get = reinterpret_cast<decltype(&::cuStreamGetCtx)>(context_.driver_symbol("cuStreamGetCtx"));
  CUcontext context = nullptr;
  if (!get) return 0;
  return get(stream.handle, &context) == CUDA_SUCCESS ? number_of(context) : stream.key | 1;  // of none that is known
}

std::uint64_t Onlookers::context_of(const Call& call) const {
  CUcontext context = call.context;
  const auto get = reinterpret_cast<decltype(&::cuCtxGetCurrent)>(context_.driver_symbol("cuCtxGetCurrent"));
  if (!get) return 0;
  if (!context && get(&context) != CUDA_SUCCESS) context = nullptr;
  return number_of(context);
}

bool Onlookers::is_capturing(const StreamRef& stream) const {
  const auto ask = reinterpret_cast<decltype(&::cuStreamIsCapturing)>(context_.driver_symbol("cuStreamIsCapturing"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && (ask(stream.handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

// With the lock, which is given up while the driver is asked.
StreamClocks::Stream Onlookers::describe(const StreamRef& stream, std::unique_lock<std::mutex>& lock) {
  if (clocks_.knows(stream)) return {stream};
  lock.unlock();
  const StreamClocks::Stream described{stream, context_.stream_kind(stream), context_of(stream)};
  lock.lock();
  return described;
}

// ---- the program's calls ----

Onlookers::Passage Onlookers::comes(const Call& call, Works& met, const std::shared_ptr<Work>& work, bool apart) {
  Passage passage;
  passage.captured = captures_.load(std::memory_order_acquire) > 0 && call.has_stream && is_capturing(call.stream);
  const bool looks = is_looking(call) && !apart && !passage.captured;
  Touched touched;
  if (looks && !work && expected_.load(std::memory_order_seq_cst)) {
    touched = touched_by(call, context_);
  } else {
    touched.anything = looks && !work;
  }
  const std::uint64_t context = call.kind == CallKind::context_synchronize ? context_of(call) : 0;
  std::unique_lock lock(mutex_);
  if (call.shown) {
    shown_ = true;
    for (const std::shared_ptr<Work>& each : works_) met.add(each);
  }
  if (call.ends == Ends::stream) {
    clocks_.ends(call.stream);
    captures_ -= static_cast<int>(std::erase(capturing_, call.stream.key));
  }
  if (call.ends == Ends::event) clocks_.forget(call.event);
  if (call.ends == Ends::green_context) clocks_.forget_streams();
  // Of an event that is recorded in a capture nothing is known, nor of one that a launch records by its attributes.
  if (passage.captured || is_looking(call)) forget(call);
  if (passage.captured) return passage;
  passage.forgets = call.has_stream && may_record_any(call, work.get());
  if (passage.forgets) clocks_.forget_events();
  switch (call.kind) {
    case CallKind::event_record:
      passage.token = clocks_.records(call.event, describe(call.stream, lock));
      break;
    case CallKind::event_wait:
      passage.token = clocks_.waits(describe(call.stream, lock), call.event);
      break;
    case CallKind::stream_synchronize:
      passage.token = clocks_.host_waits({call.stream});
      break;
    case CallKind::event_synchronize:
      passage.token = clocks_.host_waits(call.event);
      break;
    case CallKind::context_synchronize:
      passage.token = clocks_.host_waits_for_context(context);
      break;
    case CallKind::context_end:
      clocks_.forget_events();
      break;
    case CallKind::free:
    case CallKind::free_async:
      // Who uses the memory next comes behind this.
      for (OfStream& stream : touched_)
        std::erase_if(stream.parts, [&](const Part& part) { return part.range.begin == call.address; });
      break;
    default:
      break;
  }
  // A copy to the host waits for what is before it, of whomever it is.
  if (apart && is_waited_copy(call)) passage.token = clocks_.host_waits({call.stream});
  if (!looks) return passage;

  const StreamClocks::Stream stream = describe(call.stream, lock);
  passage.op = clocks_.arrives(stream);
  if (is_waited_copy(call)) passage.token = clocks_.host_waits(passage.op);
  enter(passage.op, touched, work);
  settle();
  if (works_.empty()) return passage;
  const StreamClocks::Clock before = clocks_.before(stream);
  for (const std::shared_ptr<Work>& other : works_)
    if (other != work && meets(before, *other, work ? view(*work) : view(touched))) met.add(other);
  return passage;
}

void Onlookers::forget(const Call& call) {
  for (const CUevent event : {call.event, call.event2})
    if (event) clocks_.forget(event);
}

void Onlookers::went(const Call& call, CUresult result, const Passage& passage) {
  const bool good = result == CUDA_SUCCESS;
  const bool still_captures = passage.captured && call.kind == CallKind::capture_end && is_capturing(call.stream);
  const std::lock_guard lock(mutex_);
  if (good && call.kind == CallKind::capture_begin) {
    capturing_.push_back(call.stream.key);
    ++captures_;
  }
  if (passage.captured && call.kind == CallKind::capture_end && !still_captures)
    captures_ -= static_cast<int>(std::erase(capturing_, call.stream.key));
  clocks_.landed(passage.op, good);
  clocks_.ended(passage.token, good);
  if (passage.forgets) clocks_.forget_events();
  if (is_looking(call)) forget(call);
  if (!good || call.kind != CallKind::context_end) return;
  if (is_end_of_context(call)) clocks_.context_ends(number_of(call.context));
  clocks_.forget_streams();
}

void Onlookers::passes(const Call& call, Works& met, const std::shared_ptr<Work>& work, bool apart) {
  Said* const mine = said();
  if (mine && mine->to == this) abandon(mine->passage);
  if (mine) mine->to = nullptr;
  const Passage passage = comes(call, met, work, apart);
  if (mine) {
    *mine = {this, passage};
    return;
  }
  // Nobody will know when the driver has had it.
  const std::lock_guard lock(mutex_);
  crowded_ = true;
}

void Onlookers::passed(const Call& call, CUresult result) {
  Said* const mine = said();
  const bool known = mine && mine->to == this;
  // Some calls turn out to matter only by what the driver answered.
  if (!known && !matters(call)) return;
  const Passage passage = known ? mine->passage : Passage();
  if (known) mine->to = nullptr;
  went(call, result, passage);
}

// Of a call that has never come back.
void Onlookers::abandon(const Passage& passage) {
  const std::lock_guard lock(mutex_);
  clocks_.landed(passage.op, false);
  clocks_.ended(passage.token, false);
}

Onlookers::Passage Onlookers::records(CUevent event, const StreamRef& stream) {
  std::unique_lock lock(mutex_);
  Passage passage;
  passage.token = clocks_.records(event, describe(stream, lock));
  return passage;
}

void Onlookers::recorded(const Passage& passage, bool good) {
  const std::lock_guard lock(mutex_);
  clocks_.ended(passage.token, good);
}

void Onlookers::records_unseen(CUevent event) {
  const std::lock_guard lock(mutex_);
  clocks_.forget(event);
}

void Onlookers::records_any() {
  const std::lock_guard lock(mutex_);
  clocks_.forget_events();
}

void Onlookers::enter(StreamClocks::Op op, const Touched& touched, const std::shared_ptr<Work>& work) {
  if (!work && touched.none()) return;
  if (op.number == 0) {
    crowded_ = true;
    return;
  }
  OfStream& stream = touched_[op.slot];
  last_[op.slot] = op.number;
  if (touched.variables) stream.variables = op.number;
  if (touched.anything) stream.anything = op.number;
  for (const MemoryRange& range : touched.ranges())
    if (stream.anything != op.number) enter(op, range);
  if (!work) return;
  for (Launched& each : launched_) {
    if (each.work != work || (each.op.slot != op.slot && !clocks_.is_done(each.op))) continue;
    each.op = op;
    return;
  }
  std::erase_if(launched_, [&](const Launched& each) { return clocks_.is_done(each.op); });
  if (launched_.size() == kMostLaunched) {
    stream.anything = op.number;
  } else {
    launched_.push_back({op, work});
  }
}

void Onlookers::enter(StreamClocks::Op op, const MemoryRange& range) {
  OfStream& stream = touched_[op.slot];
  for (Part& part : stream.parts) {
    if (part.range.begin != range.begin || part.range.end != range.end || part.range.written < range.written) continue;
    part.number = op.number;
    return;
  }
  if (stream.parts.size() == kMostParts)
    std::erase_if(stream.parts, [&](const Part& part) { return part.number <= clocks_.done()[op.slot]; });
  if (stream.parts.size() == kMostParts) {
    stream.parts.clear();
    stream.anything = op.number;
  } else {
    stream.parts.push_back({range, op.number});
  }
}

void Onlookers::released(std::uint64_t address, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Work>& work : works_)
    std::erase_if(work->former_, [&](const Work::Former& former) {
      return former.range.begin - address < std::max<std::uint64_t>(size, 1);
    });
}

// ---- what meets what ----

bool Onlookers::conflict(const View& one, const View& work) {
  const auto touches = [](const View& view) { return view.anything || view.variables || !view.ranges.empty(); };
  if (!touches(one) || !touches(work)) return false;
  if (one.anything || work.anything || (one.variables && work.variables)) return true;
  return std::ranges::any_of(one.ranges,
                             [&](const MemoryRange& range) { return nimble::conflict(range, work.ranges); });
}

// Whether the launches of work up to this one are before what the clock is of. Those that are not remembered any more
// are before the oldest that is.
bool Onlookers::are_before(const StreamClocks::Clock& clock, const Work& work, std::uint64_t until) {
  std::uint64_t oldest = work.begun_;
  for (const Launch& launch : work.launches_)
    if (launch.number != 0) oldest = std::min(oldest, launch.number);
  return std::ranges::all_of(work.launches_, [&](const Launch& launch) {
    if (launch.number == 0 || launch.number > std::max(until, oldest)) return true;
    return StreamClocks::has(clock, launch.op);
  });
}

// Whether what is touched, by something that comes behind what the clock has, is used by work that may be running then.
bool Onlookers::meets(const StreamClocks::Clock& clock, const Work& work, const View& touched) {
  if (!work.running_ && work.on_their_way_ == 0) return false;
  const auto is_before = [&](std::uint64_t until) { return work.on_their_way_ == 0 && are_before(clock, work, until); };
  if (is_before(work.begun_)) return false;
  if (conflict(touched, view(work))) return true;
  if (work.former_anything_ != 0 && conflict(touched, {{}, false, true}) && !is_before(work.former_anything_))
    return true;
  return std::ranges::any_of(work.former_, [&](const Work::Former& former) {
    return conflict(touched, {{&former.range, 1}}) && !is_before(former.until);
  });
}

// Whether an op that may run at the same time as what comes behind what the clock has touches what the work does.
bool Onlookers::is_looked_at(const StreamClocks::Clock& clock, const Work& work) const {
  if (crowded_ || shown_) return true;
  const View used = view(work);
  for (std::size_t slot = 0; slot < clocks_.used(); ++slot) {
    if (last_[slot] <= clock[slot]) continue;
    const OfStream& stream = touched_[slot];
    if (stream.anything > clock[slot] && conflict({{}, false, true}, used)) return true;
    if (stream.variables > clock[slot] && conflict({{}, true, false}, used)) return true;
    for (const Part& part : stream.parts)
      if (part.number > clock[slot] && conflict({{&part.range, 1}}, used)) return true;
  }
  return std::ranges::any_of(launched_, [&](const Launched& each) {
    return !StreamClocks::has(clock, each.op) && conflict(view(*each.work), used);
  });
}

// ---- work ----

void Onlookers::uses(Work& work, std::span<const MemoryRange> memory, bool variables, bool anything) {
  const std::lock_guard lock(mutex_);
  const bool may_run = work.running_ || work.on_their_way_ != 0;
  for (const MemoryRange& range : work.memory_) {
    if (!may_run) continue;
    const auto same = std::ranges::lower_bound(memory, range.begin, {}, &MemoryRange::begin);
    if (same != memory.end() && *same == range) continue;
    const auto known =
        std::ranges::find_if(work.former_, [&](const Work::Former& former) { return former.range == range; });
    if (known != work.former_.end()) {
      known->until = work.begun_;
    } else if (work.former_.size() < Work::kMostFormer) {
      work.former_.push_back({range, work.begun_});
    } else {
      work.former_anything_ = work.begun_;
    }
  }
  if (may_run && work.anything_) work.former_anything_ = work.begun_;
  // What launches in the program's order used is not kept.
  std::erase_if(launched_, [&](const Launched& each) {
    if (each.work.get() != &work) return false;
    touched_[each.op.slot].anything = std::max(touched_[each.op.slot].anything, each.op.number);
    return true;
  });
  work.memory_.assign(memory.begin(), memory.end());
  work.variables_ = work.variables_ || variables;
  work.anything_ = anything;
}

std::optional<Onlookers::Launch> Onlookers::begins(const std::shared_ptr<Work>& work, const StreamRef& stream,
                                                   std::span<const StreamRef> others, Works& met) {
  expect();
  std::unique_lock lock(mutex_);
  settle();
  const StreamClocks::Stream launch_stream = describe(stream, lock);
  StreamClocks::Clock before = clocks_.before(launch_stream);
  for (const StreamRef& other : others) {
    if (other.key == 0 || other == stream) continue;
    const StreamClocks::Clock its = clocks_.so_far(describe(other, lock));
    for (std::size_t i = 0; i < clocks_.used(); ++i) before[i] = std::max(before[i], its[i]);
  }
  bool alone = !is_looked_at(before, *work);
  for (const std::shared_ptr<Work>& other : works_) {
    if (other == work || !meets(before, *other, view(*work))) continue;
    met.add(other);
    alone = false;
  }
  if (!alone) return std::nullopt;
  if (std::ranges::find(works_, work) == works_.end()) try {
      works_.push_back(work);
    } catch (const std::bad_alloc&) {  // nobody would be held against it
      return std::nullopt;
    }
  Launch launch;
  launch.op = clocks_.arrives(launch_stream);
  launch.number = ++work->begun_;
  ++work->on_their_way_;
  return launch;
}

void Onlookers::begun(const std::shared_ptr<Work>& work, const Launch& launch, bool good, bool in_our_order) {
  const std::lock_guard lock(mutex_);
  --work->on_their_way_;
  clocks_.landed(launch.op, good);
  if (good && !in_our_order) enter(launch.op, {}, work);
  if (!good || !in_our_order) return;
  work->running_ = true;
  Launch* oldest = &work->launches_[0];
  for (Launch& each : work->launches_)
    if (each.number < oldest->number) oldest = &each;
  *oldest = launch;
}

bool Onlookers::may_run(const Work& work) const {
  const std::lock_guard lock(mutex_);
  return work.running_ || work.on_their_way_ != 0;
}

void Onlookers::leave(const std::shared_ptr<Work>& work) {
  std::shared_ptr<Work> oldest;
  {
    const std::lock_guard lock(mutex_);
    work->gone_ = true;
    settle();
    if (works_.size() <= kMostGone) return;
    const auto found = std::ranges::find_if(works_, [](const auto& each) { return each->gone_; });
    if (found != works_.end()) oldest = *found;
  }
  if (!oldest || !oldest->is_through()) return;
  const std::lock_guard lock(mutex_);
  through(*oldest, oldest->begun_);  // nobody launches it any more
  settle();
}

// What is known to be through is so, and need not be looked at until it is launched again.
void Onlookers::settle() {
  for (const std::shared_ptr<Work>& work : works_) settle(*work);
  std::erase_if(works_, [](const std::shared_ptr<Work>& work) { return !work->running_ && work->on_their_way_ == 0; });
}

void Onlookers::settle(Work& work) const {
  if (work.running_ && work.on_their_way_ == 0 && are_before(clocks_.done(), work, work.begun_))
    through(work, work.begun_);
}

void Onlookers::through(Work& work, std::uint64_t number) {
  if (work.on_their_way_ != 0 || work.begun_ != number) return;
  work.running_ = false;
  work.former_.clear();
  work.former_anything_ = 0;
  work.launches_.fill({});
}

Onlookers::Works Onlookers::running() const {
  const std::lock_guard lock(mutex_);
  Works running;
  for (const std::shared_ptr<Work>& work : works_)
    if (work->running_ || work->on_their_way_ != 0) running.add(work);
  return running;
}

void Onlookers::wait_for(const Works& works) {
  const NotCancelled not_cancelled;
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  for (std::uint32_t i = 0; i < works.count_; ++i) wait_for(works.list_[i], end);
  while (works.all_) {
    std::shared_ptr<Work> one;
    {
      const std::lock_guard lock(mutex_);
      settle();
      const auto found =
          std::ranges::find_if(works_, [](const auto& each) { return each->running_ || each->on_their_way_ != 0; });
      if (found != works_.end()) one = *found;
    }
    if (!one || !wait_for(one, end)) return;
  }
}

// Whether it is through in time.
bool Onlookers::wait_for(const std::shared_ptr<Work>& work, std::chrono::steady_clock::time_point end) {
  while (true) {
    std::uint64_t number = 0;
    bool can_be_asked = false;
    {
      const std::lock_guard lock(mutex_);
      settle(*work);
      if (!work->running_ && work->on_their_way_ == 0) return true;
      number = work->begun_;
      can_be_asked = work->on_their_way_ == 0;
    }
    const bool is_over = std::chrono::steady_clock::now() >= end;
    if (is_over || (can_be_asked && work->is_through())) {
      // What did not end in time counts as through: nobody waits for it again.
      const std::lock_guard lock(mutex_);
      through(*work, number);
      if (is_over) return false;
      continue;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace nimble
