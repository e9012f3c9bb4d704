#include "replayer/onlookers/onlookers.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "nimble/internal/process/not_cancelled.h"
#include "replayer/onlookers/launch_addresses.h"

namespace nimble {

namespace {

constexpr std::chrono::milliseconds kMostWait{1000};
constexpr std::size_t kMostCaptures = 64;

bool is_looking(const Call& call) { return call.traced && call.has_stream && touches_memory(call.kind); }

// Whether it may record events that it does not name.
bool may_record_any(const Call& call) { return call.kind == CallKind::graph_launch || call.kind == CallKind::opaque; }

// A copy to the host that the host waits for; others that are said to wait may return before they have finished.
bool is_waited_copy(const Call& call) {
  return call.kind == CallKind::copy && call.synchronous() && call.transfer.device_source && call.transfer.width != 0 &&
         call.transfer.height != 0;
}

// Whether the call only puts an op on a stream: it names no event, and the host does not wait in it.
bool only_submits(const Call& call) {
  return is_looking(call) && !call.stream.is_of_graph() && call.kind != CallKind::graph_launch &&
         call.kind != CallKind::opaque && !call.shown && call.ends == Ends::nothing && !call.event && !call.event2 &&
         !is_waited_copy(call);
}

}  // namespace

Onlookers::Onlookers(CallContext& context) : context_(context), facts_(context), touched_(clocks_) {
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

// ---- the program's calls ----

// With the lock, which is given up while the driver is asked.
StreamClocks::Stream Onlookers::describe(const StreamRef& stream, std::unique_lock<LightMutex>& lock) {
  if (clocks_.knows(stream)) return {stream};
  lock.unlock();
  const StreamClocks::Stream described = facts_.describe(stream);
  lock.lock();
  return described;
}

// An op that is not kept apart counts before it is certain that it touches nothing that is watched: what is watched
// later on finds it.
bool Onlookers::passes_unseen(Call& call, bool apart) {
  if (!only_submits(call) || captures_.load(std::memory_order_acquire) > 0) return false;
  if (apart) {
    call.unseen = kUncounted;
    return true;
  }
  const WatchedMemory::Version version = watched_.version();
  const std::uint32_t slot = clocks_.slot_of(call.stream);
  if (slot == StreamClocks::kNoSlot || clocks_.is_joined(slot)) return false;
  if (call.kind == CallKind::launch ? launch_touches(call, context_, watched_) : touches(call, context_, watched_))
    return false;
  StreamClocks::Passing& passing = clocks_.passing(slot);
  const bool crowded = passing.enter();
  // Streams may have been forgotten meanwhile, and the slot given to another one.
  if (watched_.is_latest(version) && clocks_.is_slot_of(slot, call.stream)) {
    call.unseen = kUncounted + 1 + 2 * slot + (crowded ? 1 : 0);
    return true;
  }
  passing.leave(crowded);
  return false;
}

Passage Onlookers::comes(const Call& call, Works& met, const std::shared_ptr<Work>& work, bool apart) {
  Passage passage;
  passage.captured =
      captures_.load(std::memory_order_acquire) > 0 && call.has_stream && facts_.is_capturing(call.stream);
  const bool looks = is_looking(call) && !apart && !passage.captured;
  const std::optional<Touched> touched = looks && !work ? std::optional(look(call)) : std::nullopt;
  const std::uint64_t context = call.kind == CallKind::context_synchronize ? facts_.context_of(call) : 0;
  std::unique_lock lock(mutex_);
  end(call, met);
  // Of an event that is recorded in a capture nothing is known, nor of one that a launch records by its attributes.
  if (passage.captured || is_looking(call)) forget(call);
  if (passage.captured) return passage;
  passage.forgets = call.has_stream && (work ? work->records_ : may_record_any(call));
  if (passage.forgets) clocks_.forget_events();
  passage.token = order(call, context, lock);
  // A copy to the host waits for what is before it, of whomever it is.
  if (apart && is_waited_copy(call)) passage.token = clocks_.host_waits({call.stream});
  if (!looks) return passage;
  const StreamClocks::Stream stream = describe(call.stream, lock);
  passage.op = clocks_.arrives(stream);
  if (is_waited_copy(call)) passage.token = clocks_.host_waits(passage.op);
  touched_.add(passage.op, touched ? touched->view() : MemoryView(), work);
  const MemoryView what = work ? work->view() : touched->view();
  close_where_it_matters(what, passage.op.number == 0 ? StreamClocks::kNoSlot : passage.op.slot, work.get());
  settle();
  if (!works_.empty()) meet(clocks_.before(stream), what, work, met);
  return passage;
}

// Adds the works, but for its own, that conflict with what accesses this and is ordered after what the clock has.
void Onlookers::meet(const StreamClocks::Clock& before, const MemoryView& touched, const std::shared_ptr<Work>& work,
                     Works& met) const {
  for (const std::shared_ptr<Work>& other : works_)
    if (other != work && other->meets(before, touched)) met.add(other);
}

// What it touches, as far as that matters. Without the lock.
Touched Onlookers::look(const Call& call) const {
  if (expected_.load(std::memory_order_seq_cst)) return touched_by(call, context_);
  Touched touched;
  touched.anything = true;
  return touched;
}

// What the call ends: a stream, an event, or that others look at known moments only.
void Onlookers::end(const Call& call, Works& met) {
  if (call.shown) {
    shown_ = true;
    close_all();
    for (const std::shared_ptr<Work>& each : works_) {
      count_launches(*each);
      if (each->may_run()) met.add(each);
    }
  }
  if (call.ends == Ends::stream) {
    clocks_.ends(call.stream);
    captures_ -= static_cast<int>(std::erase(capturing_, call.stream.key));
  }
  if (call.ends == Ends::event) clocks_.forget(call.event);
  if (call.ends == Ends::green_context) clocks_.forget_streams();
}

// What comes before what by the call; `context`: the one that it synchronizes.
StreamClocks::Token Onlookers::order(const Call& call, std::uint64_t context, std::unique_lock<LightMutex>& lock) {
  switch (call.kind) {
    case CallKind::event_record: {
      const StreamClocks::Stream stream = describe(call.stream, lock);
      close_those_that_record();
      return clocks_.records(call.event, stream);
    }
    case CallKind::event_wait:
      return clocks_.waits(describe(call.stream, lock), call.event);
    case CallKind::stream_synchronize:
      return clocks_.host_waits({call.stream});
    case CallKind::event_synchronize:
      return clocks_.host_waits(call.event);
    case CallKind::context_synchronize:
      return clocks_.host_waits_for_context(context);
    case CallKind::context_end:
      clocks_.forget_events();
      return 0;
    case CallKind::free:
    case CallKind::free_async:
      touched_.release(call.memory.address);
      return 0;
    default:
      return 0;
  }
}

void Onlookers::forget(const Call& call) {
  for (const CUevent event : {call.event, call.event2})
    if (event) clocks_.forget(event);
}

void Onlookers::went(const Call& call, CUresult result, const Passage& passage) {
  const bool good = result == CUDA_SUCCESS;
  const bool still_captures =
      passage.captured && call.kind == CallKind::capture_end && facts_.is_capturing(call.stream);
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
  if (is_end_of_context(call)) clocks_.context_ends(StreamFacts::number_of(call.context));
  clocks_.forget_streams();
}

void Onlookers::passes(Call& call, Works& met, const std::shared_ptr<Work>& work, bool apart) {
  abandon_last();
  const bool only_waits = call.kind == CallKind::stream_synchronize || call.kind == CallKind::event_synchronize;
  if (only_waits) {
    // Without a token the host waits for what is known to be through.
    const StreamClocks::Token token = comes(call, met, work, apart).token;
    call.unseen = token == 0 ? kUncounted : kWaits + token;
    return;
  }
  keep(comes(call, met, work, apart));
}

// For when this thread's call comes back.
void Onlookers::keep(const Passage& passage) {
  PassageOfThread* const mine = PassageOfThread::mine();
  if (mine) {
    *mine = {this, passage};
    return;
  }
  // Nobody will know when the driver has had it.
  const std::lock_guard lock(mutex_);
  touched_.add_unknown();
  close_all();
}

void Onlookers::was_seen(const Call& call, CUresult result) {
  PassageOfThread* const mine = PassageOfThread::mine();
  const bool known = mine && mine->to == this;
  // Some calls turn out to matter only by what the driver answered.
  if (!known && !matters(call)) return;
  const Passage passage = known ? mine->passage : Passage();
  if (known) mine->to = nullptr;
  went(call, result, passage);
}

void Onlookers::has_waited(StreamClocks::Token token, CUresult result) {
  const std::lock_guard lock(mutex_);
  clocks_.ended(token, result == CUDA_SUCCESS);
}

// If this thread's last call has never come back.
void Onlookers::abandon_last() {
  PassageOfThread* const mine = PassageOfThread::mine();
  if (!mine) return;
  if (mine->to == this) {
    const std::lock_guard lock(mutex_);
    clocks_.landed(mine->passage.op, false);
    clocks_.ended(mine->passage.token, false);
  }
  mine->to = nullptr;
}

Passage Onlookers::records(CUevent event, const StreamRef& stream) {
  std::unique_lock lock(mutex_);
  Passage passage;
  const StreamClocks::Stream described = describe(stream, lock);
  close_those_that_record();
  passage.token = clocks_.records(event, described);
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

void Onlookers::released(std::uint64_t address, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Work>& work : works_) work->release(address, size);
}

// ---- work ----

void Onlookers::expect() {
  if (expected_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard lock(mutex_);
  if (!expected_.exchange(true)) watch({{}, true, true});
}

void Onlookers::uses(const std::shared_ptr<Work>& work, std::span<const MemoryRange> memory, bool variables,
                     bool anything) {
  const std::lock_guard lock(mutex_);
  expected_.store(true, std::memory_order_seq_cst);
  close(*work);
  count_launches(*work);
  const bool is_first = users_.empty();
  const MemoryView uses{memory, variables, anything};
  // While memory moves ops are looked at one by one, so that what has passed does not count as touching the new memory.
  if (work->is_watched_ && !watched_.covers(uses)) {
    watched_.add({{}, true, true});
    calm_ = 0;
  }
  if (!work->is_watched_) users_.push_back(work);
  work->is_watched_ = true;
  // Where everything is watched nothing is new; what has passed before that may have touched this all the same.
  watched_.kinds().anything ? count_as_touching(uses) : watch(uses);
  touched_.forget(*work);
  work->use(memory, variables, anything);
  is_first ? watch_less() : may_watch_less();
}

// With the lock. What ops that have passed unseen may have touched of it, they count as touching from now on.
void Onlookers::watch(const MemoryView& memory) {
  const Touched added = watched_.add(memory);
  if (!added.none()) count_as_touching(added.view());
}

// With the lock. What has passed unseen, and is not known to be through, may have read and written this.
void Onlookers::count_as_touching(const MemoryView& memory) {
  Touched touched;
  touched.variables = memory.variables;
  touched.anything = memory.anything;
  close_all();
  for (const MemoryRange& range : memory.ranges) touched.add({range.begin, range.end, true});
  for (std::uint32_t slot = 0; slot < clocks_.used(); ++slot)
    if (const StreamClocks::Op op = clocks_.entered(slot); op.number != 0) touched_.add(op, touched.view(), nullptr);
}

// With the lock. Looking through all works is worth it once as much has changed as there is to look through.
void Onlookers::may_watch_less() {
  constexpr std::size_t kLeast = 16;
  if (++changes_ >= std::max(kLeast, users_.size()) && calm_ >= kCalm) watch_less();
}

// With the lock. What no work uses any more is not watched.
void Onlookers::watch_less() try {
  changes_ = 0;
  std::erase_if(users_, [](const std::weak_ptr<Work>& user) { return user.expired(); });
  watched_.keep_only([&](const auto& keep) {
    for (const std::weak_ptr<Work>& user : users_)
      if (const std::shared_ptr<Work> work = user.lock(); work && (!work->gone_ || work->may_run()))
        work->each_use(keep);
  });
} catch (const std::bad_alloc&) {  // what is watched stays so
}

// Whether nothing that may run beside the work, launched on the stream after what `others` have got, touches what it
// uses. Adds the works that do.
bool Onlookers::is_alone(const std::shared_ptr<Work>& work, const StreamClocks::Stream& stream,
                         std::span<const StreamRef> others, Works& met, std::unique_lock<LightMutex>& lock) {
  const auto is_other = [&](const std::shared_ptr<Work>& each) { return each != work; };
  if (!touched_.any() && std::ranges::none_of(works_, is_other)) return true;
  StreamClocks::Clock before = clocks_.before(stream);
  for (const StreamRef& other : others) {
    if (other.key == 0 || other == stream.ref) continue;
    before.join(clocks_.so_far(describe(other, lock)));
  }
  bool alone = !touched_.meets(before, work->view());
  for (const std::shared_ptr<Work>& other : works_) {
    if (other == work || !other->meets(before, work->view())) continue;
    met.add(other);
    alone = false;
  }
  return alone;
}

std::optional<Onlookers::Launch> Onlookers::begins(const std::shared_ptr<Work>& work, const StreamRef& stream,
                                                   std::span<const StreamRef> others, Works& met) {
  std::unique_lock lock(mutex_);
  const StreamClocks::Stream launch_stream = describe(stream, lock);
  if (calm_ < kCalm && ++calm_ == kCalm) watch_less();
  const std::uint32_t slot = clocks_.slot_of(stream);
  if (const StreamClocks::Gate* const gate = work->gate_.load(std::memory_order_relaxed))
    if (StreamClocks::slot_of(*gate) != slot) close(*work);
  close_where_it_matters(work->view(), slot, nullptr);
  settle(work.get());
  if (!is_alone(work, launch_stream, others, met, lock) || shown_) return std::nullopt;
  if (std::ranges::find(works_, work) == works_.end()) try {
      works_.push_back(work);
    } catch (const std::bad_alloc&) {  // ops could not be checked against it
      return std::nullopt;
    }
  if (work->records_) clocks_.forget_events();
  return work->begin(clocks_.arrives(launch_stream));
}

void Onlookers::begun(const std::shared_ptr<Work>& work, const Launch& launch, bool good, bool in_our_order) {
  const std::lock_guard lock(mutex_);
  work->land();
  clocks_.landed(launch.op, good);
  if (work->records_) clocks_.forget_events();
  if (!good) return;
  if (in_our_order) {
    work->run(launch);
    open_gate(*work, launch);
  } else {
    touched_.add(launch.op, MemoryView(), work);
    close_where_it_matters(work->view(), launch.op.slot, work.get());
  }
}

bool Onlookers::may_run(Work& work) {
  const std::lock_guard lock(mutex_);
  count_launches(work);
  return work.may_run() || is_in_gate(work);
}

void Onlookers::leave(const std::shared_ptr<Work>& work) {
  std::shared_ptr<Work> oldest;
  {
    const std::lock_guard lock(mutex_);
    work->gone_ = true;
    close(*work);
    count_launches(*work);
    if (StreamClocks::Gate* const gate = work->gate_.exchange(nullptr)) clocks_.give_back(*gate);
    settle();
    may_watch_less();
    if (works_.size() <= kMostGone) return;
    const auto found = std::ranges::find_if(works_, [](const auto& each) { return each->gone_; });
    if (found != works_.end()) oldest = *found;
  }
  if (!oldest || !oldest->is_through()) return;
  const std::lock_guard lock(mutex_);
  oldest->end(oldest->begun_);  // it is not launched any more
  settle();
}

// `kept`: it is about to run again.
void Onlookers::settle(const Work* kept) {
  std::erase_if(works_, [&](const std::shared_ptr<Work>& work) { return has_settled(*work) && work.get() != kept; });
}

// Whether all that was launched of it is known to be through. What is not listed cannot come by its gate.
bool Onlookers::has_settled(Work& work) {
  count_launches(work);
  work.settle(clocks_.done());
  if (work.may_run()) return false;
  close(work);
  count_launches(work);
  return !work.may_run() && !is_in_gate(work);
}

Onlookers::Works Onlookers::running() {
  const std::lock_guard lock(mutex_);
  Works running;
  for (const std::shared_ptr<Work>& work : works_) {
    count_launches(*work);
    if (work->may_run() || is_in_gate(*work)) running.add(work);
  }
  return running;
}

// ---- waiting ----

std::shared_ptr<Onlookers::Work> Onlookers::find_running() {
  const std::lock_guard lock(mutex_);
  settle();
  return works_.empty() ? nullptr : works_.front();
}

void Onlookers::wait_for(const Works& works) {
  const NotCancelled not_cancelled;
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  for (const std::shared_ptr<Work>& work : works.list_) wait_for(work, end);
  while (works.all_) {
    const std::shared_ptr<Work> one = find_running();
    if (!one || !wait_for(one, end)) return;
  }
}

// Whether it has finished in time.
bool Onlookers::wait_for(const std::shared_ptr<Work>& work, std::chrono::steady_clock::time_point end) {
  while (true) {
    std::uint64_t number = 0;
    bool can_be_asked = false;
    {
      const std::lock_guard lock(mutex_);
      if (has_settled(*work)) return true;
      number = work->begun_;
      can_be_asked = work->on_their_way_ == 0 && !is_in_gate(*work);
    }
    const bool is_over = std::chrono::steady_clock::now() >= end;
    if (is_over || (can_be_asked && work->is_through())) {
      // What did not complete in time counts as completed: it is not waited for again.
      const std::lock_guard lock(mutex_);
      count_launches(*work);
      if (!is_in_gate(*work)) work->end(number);
      if (is_over) return false;
      continue;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace nimble
