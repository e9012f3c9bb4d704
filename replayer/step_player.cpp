#include "replayer/step_player.h"

#include <algorithm>

#include "replayer/current_context.h"

namespace nimble {

namespace {

// Whether the GPU may have to wait for something before it is through with this.
bool may_wait(CallKind kind) {
  return kind == CallKind::launch || kind == CallKind::host_function || kind == CallKind::graph_launch ||
         kind == CallKind::event_wait || kind == CallKind::opaque;
}

}  // namespace

StepPlayer::StepPlayer(Schedule schedule, CallContext& context, const DriverApi& driver, Counters& counters)
    : schedule_(std::move(schedule)),
      context_(context),
      driver_(driver),
      counters_(counters),
      objects_(schedule_, memory_),
      live_(schedule_, context, memory_, objects_,
            Reach(driver.cuPointerGetAttribute_, driver.cuDeviceGetCount_, driver.cuDeviceGetAttribute_)),
      cursor_(schedule_),
      streams_(schedule_, context, driver),
      passing_(schedule_.segments.size(), 0),
      up_to_date_(schedule_.segments.size(), false),
      in_copies_(schedule_.objects.size(), false),
      clock_(driver) {
  // On several streams ops of later segments may come before one is complete.
  std::size_t longest = schedule_.streams.size() > 1 ? schedule_.ops.size() : 0;
  for (const ScheduleSegment& segment : schedule_.segments)
    longest = std::max<std::size_t>(longest, segment.last - segment.first + 1);
  for (const ScheduleOp& op : schedule_.ops) {
    for (const SchedulePointer* pointer : {&op.dst, &op.src}) {
      if (op.submit == Submit::graph && pointer->object != kNone) in_copies_[pointer->object] = true;
    }
  }
  held_.reserve(longest);
  held_events_.reserve(longest);
  changed_.reserve(longest);
  batch_.reserve(longest);
}

std::optional<CUresult> StepPlayer::before(Call& call) {
  const auto answer = play(call);
  if (!aside_.empty()) leave();
  return answer;
}

std::optional<CUresult> StepPlayer::play(Call& call) {
  if (call.address_range) return answer_address_range(call);
  switch (call.ends) {
    case Ends::nothing:
      break;
    case Ends::event: {
      if (record_is_held(call.event) || wait_is_held(call.event)) flush_early();
      let_go(call.event);
      live_.forget_event(call.event);
      return std::nullopt;
    }
    case Ends::stream:
    case Ends::green_context:
    case Ends::code: {
      flush_early();
      // Graphs hold functions and are launched on the stream: neither may go on being used. The stream may be one of
      // the green context's.
      if (call.ends != Ends::stream) unbind();
      if (call.ends == Ends::green_context) streams_.forget();
      if (call.ends == Ends::stream) {
        stream_ends(streams_.find(call.stream));
        forget_capture(call.stream);
      }
      return std::nullopt;
    }
  }
  if (!call.traced) {
    if (call.host == HostEffect::observe) flush_early();
    return std::nullopt;
  }
  switch (call.kind) {
    case CallKind::alloc:
      return std::nullopt;
    case CallKind::free:
      return on_free(call);
    case CallKind::hidden:
      flush_early();  // whether it comes to that, the driver's answer tells
      return std::nullopt;
    case CallKind::context_end: {
      flush_early();
      context_ended(call);
      return std::nullopt;
    }
    case CallKind::capture_begin: {
      // From here on the stream collects a graph of the program's: nothing of ours may come in between. Counted before
      // the driver knows, so that no other thread's call makes us do something that a capture forbids.
      flush_early();
      if (cursor_.begun()) diverge("a capture began");
      streams_.release();
      captures_.insert(call.stream.key);
      return std::nullopt;
    }
    case CallKind::capture_end:
      return std::nullopt;
    default:
      break;
  }
  if (is_op(call.kind)) return on_op(call);
  if (observes(call)) flush_early();
  // What the program waits for, or asks about, on a stream of its own includes what the graphs did for it.
  if (const std::uint32_t stream = call.has_stream ? streams_.find(call.stream) : kNone; stream != kNone)
    keep_order(streams_.catch_up(stream));
  return std::nullopt;
}

// The launch stream comes first: with it all graphs go.
void StepPlayer::stream_ends(std::uint32_t stream) {
  if (stream == kNone) return;
  if (stream == 0) return unbind(), streams_.forget();
  if (cursor_.begun()) diverge("a stream went away");
  streams_.ends(stream);
}

// Gives the step's own objects their places in the arena.
void StepPlayer::place_by_plan() {
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    if (schedule_.objects[i].step_local) objects_.place_by_plan(i, arena_ + schedule_.objects[i].plan_offset);
  }
  planned_ = true;
}

void StepPlayer::note(const MemoryEvent& event) {
  if (event.born) {
    memory_.add(event.allocation);
    objects_.changed();
  } else {
    memory_.remove(event.allocation.base, event.allocation.size);
    objects_.freed(event.allocation.base, event.allocation.size);
  }
}

Bystanders::State StepPlayer::state() const {
  const bool follows = cursor_.begun() || state_ == State::bound;
  return {.streams = follows ? streams_.live() : std::span<const StreamRef>{},
          .version = follows ? streams_.version() : 0,
          .open = !follows || streams_.count() > 1,
          .holding = !held_.empty(),
          .capturing = !captures_.empty(),
          .arena = arena_,
          .arena_bytes = schedule_.arena_bytes,
          .closing = last_due_,
          .auditing = audit_ && audit_->pending()};
}

std::optional<CUresult> StepPlayer::before_aside(Call& call) {
  const bool frees = call.kind == CallKind::free || call.kind == CallKind::free_async;
  if (!in_arena(call.address) || !(frees || call.address_range)) return std::nullopt;
  if (failed_ != CUDA_SUCCESS) return failed_;
  return frees ? free_in_arena(call) : answer_address_range(call);
}

// The arena is one allocation to the driver, but many to the program.
std::optional<CUresult> StepPlayer::answer_address_range(Call& call) const {
  if (!in_arena(call.address)) return std::nullopt;
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    const std::uint64_t base = arena_ + object.plan_offset;
    if (!objects_.taken(i) || call.address - base >= object.size) continue;
    call.address = base;
    call.size = object.size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

const char* StepPlayer::mismatch(std::uint32_t index, const Call& call) {
  if (const char* reason = live_.match(index, call)) return reason;
  const ScheduleOp& op = schedule_.ops[index];
  const bool serve = serving_ && op.submit == Submit::plan && op.kind == CallKind::alloc_async;
  return serve && is_in_use(op.object) ? "memory of the plan is still in use" : nullptr;
}

void StepPlayer::note_leftovers() {
  leftovers_.clear();
  for (std::uint32_t i = 0; objects_.all_taken() != 0 && i < schedule_.objects.size(); ++i) {
    if (objects_.taken(i)) leftovers_.push_back(i);
  }
}

// Whether the program still has something where the plan has this object. Within a step on one stream the plan lets no
// two objects meet that the program has at the same time; several threads may allocate and release in another order
// than they did when recorded.
bool StepPlayer::is_in_use(std::uint32_t object) const {
  const ScheduleObject& mine = schedule_.objects[object];
  const auto meets = [&](std::uint32_t other) {
    const ScheduleObject& its = schedule_.objects[other];
    const bool apart =
        mine.plan_offset + mine.size <= its.plan_offset || its.plan_offset + its.size <= mine.plan_offset;
    return objects_.taken(other) && (other == object || !apart);
  };
  if (schedule_.streams.size() == 1) return std::any_of(leftovers_.begin(), leftovers_.end(), meets);
  for (std::uint32_t other = 0; objects_.all_taken() != 0 && other < schedule_.objects.size(); ++other)
    if (meets(other)) return true;
  return false;
}

std::uint32_t StepPlayer::stream_that_begins_with(const Call& call) {
  // Graphs stay on the launch stream that they are bound to.
  for (std::uint32_t s = state_ == State::bound ? 1 : 0; s < streams_.count(); ++s) {
    const bool found = state_ == State::searching && cursor_.begun() && streams_.has(s);
    if (cursor_.begun(s) || found || cursor_.first(s) == kNone) continue;
    if (could_be(schedule_, context_, cursor_.first(s), call) && streams_.could_be(s, call.stream) &&
        !mismatch(cursor_.first(s), call))
      return s;
  }
  return kNone;
}

std::optional<CUresult> StepPlayer::on_op(Call& call) {
  if (!captures_.empty()) return outside(call);
  if (!cursor_.begun()) return begin_step(call);
  // A direct op may have been the last that a segment had to wait for.
  submit_ready();
  if (!aside_.empty()) return outside(call);
  std::uint32_t stream = streams_.find(call.stream);
  if (stream == kNone) {
    stream = streams_.count() > 1 ? stream_that_begins_with(call) : kNone;
    if (stream == kNone) return outside(call);
    streams_.set(stream, call.stream);
    return on_matched(cursor_.first(stream), call);
  }
  const std::uint32_t index = cursor_.next(stream);
  const char* const reason = index == kNone ? "an op after the last one on its stream" : mismatch(index, call);
  if (!reason) return on_matched(index, call);
  flush();
  diverge(reason, index);
  return on_op(call);  // it may be the first op of a step
}

// Nothing of a step has come yet: the call may be its first op.
std::optional<CUresult> StepPlayer::begin_step(Call& call) {
  if (!aside_.empty()) return outside(call);
  std::uint32_t stream = streams_.find(call.stream);
  if (state_ == State::searching) {
    // Not earlier: other ops between two steps may pass without coming here (replayer/bystanders.h).
    if (step_complete_ && stream != kNone && could_be(schedule_, context_, cursor_.first(stream), call)) bind();
  } else if (stream == kNone) {
    return outside(call);
  }
  judge_audit();
  read_clock();
  if (!aside_.empty()) return outside(call);
  objects_.begin_step();
  live_.begin_step();
  note_leftovers();
  serving_ = state_ == State::bound;
  if (state_ == State::searching) {
    stream = stream_that_begins_with(call);
  } else if (mismatch(cursor_.first(stream), call)) {
    stream = kNone;
  }
  // A wait begins no step, unless the recorded one did.
  if (stream == kNone || (cursor_.first(stream) != 0 && call.kind == CallKind::event_wait)) return outside(call);
  const std::uint32_t index = cursor_.first(stream);
  if (state_ == State::searching) {
    step_complete_ = false;  // what it has told is told anew from here on
    streams_.forget();
    CUcontext context = nullptr;
    if (driver_.cuCtxGetCurrent_(&context) != CUDA_SUCCESS || !context) return outside(call);
    cu_context_ = context;
  }
  streams_.use_context(cu_context_);
  streams_.set(stream, call.stream);
  begin_matched_step();
  return aside_.empty() ? on_matched(index, call) : outside(call);
}

// How the step that begins is to be submitted.
void StepPlayer::begin_matched_step() {
  ++step_;
  next_segment_ = 0;
  last_due_ = false;
  by_graphs_ = true;
  if (serving_ && !streams_.settled()) serving_ = false;
  pass_step_ = !serving_ || (schedule_.carries && !as_recorded_);
  as_recorded_ = false;
  if (serving_) {
    if (!planned_) place_by_plan();
    keep_order(streams_.begin_step());
    if (!aside_.empty()) return;
  } else {
    planned_ = false;
  }
  if (audit_) run_ = audit_->begin_step(ops_elsewhere(), serving_);
  choose_way();
}

std::optional<CUresult> StepPlayer::on_matched(std::uint32_t index, Call& call) {
  cursor_.advance(index);
  const bool last = cursor_.complete();
  const ScheduleOp& op = schedule_.ops[index];
  std::optional<CUresult> answer;
  if (live_.unknown_wait() && !pass_step_) {
    // The graphs' order would not keep that wait.
    pass_step_ = true;
    tried_ = false;
    clock_.cancel();
    flush();
  }
  if (op.submit == Submit::plan && serving_) {
    objects_.take(op.object, op.kind == CallKind::alloc_async);
    if (op.kind == CallKind::alloc_async) {
      call.address = arena_ + schedule_.objects[op.object].plan_offset;
      objects_.use(op.object);
      ++counters_.allocations_served;
    }
    answer = CUDA_SUCCESS;
  } else if (is_held(op.submit) && !pass_step_ && passing_[op.segment] != step_) {
    held_.push_back(index);
    ++holds_;
    if (op.submit == Submit::graph && (live_.changed(index) || !up_to_date_[op.segment])) changed_.push_back(index);
    if (op.kind == CallKind::event_record) held_events_.push_back(call.event);
    answer = CUDA_SUCCESS;
  } else {
    // Passes: while binding, after an early flush in this segment, and for ops that no graph holds.
    ++counters_.ops_passed_through;
    // What is held and stands before it in the schedule may have to come before it, and so has what its event means.
    // And where the step ends with it, nothing can go behind it as a graph.
    const auto before = [&](std::uint32_t other) { return last || other < index; };
    if (std::any_of(held_.begin(), held_.end(), before) || record_is_held(call.event) || wait_is_held(call.event))
      flush();
    individually(op.stream);
    call.of_step = true;
    if (call.kind == CallKind::alloc_async) {
      placing_ = op.submit == Submit::plan ? index : kNone;
      placing_thread_ = call.thread;
    }
    if (call.kind == CallKind::free_async) {
      if (in_arena(call.address)) {
        answer = free_in_arena(call);
      } else {
        memory_.remove(call.address);
        objects_.freed(call.address);  // the pool may give the address to another of the step's objects
      }
    }
  }
  if (answer == CUDA_SUCCESS) {
    submit_ready();
    if (owed_.any() && may_tell(call)) answer = owed_.take();
  }
  if (last) end_step(!answer, call.thread);
  return answer;
}

// Whether the op goes into a graph that the program is capturing: then it does nothing now.
bool StepPlayer::is_captured(const Call& call) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return !captures_.empty() && call.has_stream &&
         driver_.cuStreamIsCapturing_(call.stream.handle, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void StepPlayer::forget_capture(const StreamRef& stream) {
  if (const auto found = captures_.find(stream.key); found != captures_.end()) captures_.erase(found);
}

// Something of the order of streams failed, and was made by waiting. That is no way to go on.
void StepPlayer::keep_order(CUresult result) {
  if (result != CUDA_SUCCESS)
    stand_aside("the driver refused to keep streams in order (error " + std::to_string(result) + ")");
}

void StepPlayer::individually(std::uint32_t stream) { keep_order(streams_.individually(stream)); }

std::optional<CUresult> StepPlayer::outside(Call& call) {
  ++counters_.ops_passed_through;
  if (is_captured(call)) return std::nullopt;
  if (observes(call)) flush_early();
  const std::uint32_t stream = call.has_stream ? streams_.find(call.stream) : kNone;
  if (stream != kNone) keep_order(streams_.outside(stream, may_wait(call.kind)));
  for (CUevent event : {call.event, call.event2}) {
    if (event && call.kind != CallKind::event_wait) live_.forget_record(event);
  }
  if (audit_ && call.has_stream && stream == kNone) {
    ++ops_elsewhere_;
    if (audit_->pending() && driver_.cuStreamWaitEvent_(call.stream.handle, audit_->done(), 0) != CUDA_SUCCESS)
      stand_aside("a stream cannot wait for an audit");
  }
  if (call.kind != CallKind::free_async) return std::nullopt;
  if (in_arena(call.address)) return free_in_arena(call);
  memory_.remove(call.address);
  objects_.freed(call.address);
  return std::nullopt;
}

std::optional<CUresult> StepPlayer::on_free(Call& call) {
  if (call.host == HostEffect::observe) flush_early();
  if (in_arena(call.address)) return free_in_arena(call);
  memory_.remove(call.address, call.size);
  objects_.freed(call.address, call.size);
  return std::nullopt;
}

// The program gives step-local memory back outside the place where the schedule expects it.
std::optional<CUresult> StepPlayer::free_in_arena(const Call& call) {
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    if (!object.step_local || arena_ + object.plan_offset != call.address || !objects_.taken(i)) continue;
    objects_.take(i, false);
    // cuMemFree takes it that all accesses are over. Where our stream is gone, or replay has stood aside, nobody will
    // use the memory again.
    const StreamRef launch = streams_.launch();
    if (call.kind == CallKind::free || !launch.key || call.stream == launch || !aside_.empty()) return CUDA_SUCCESS;
    const CurrentContext current(driver_, cu_context_);
    // The next use of the memory comes behind our stream: that must come after what the program's stream still does
    // with it.
    CUevent event = nullptr;
    CUresult result = driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(event, call.stream.handle);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(launch.handle, event, 0);
    if (event) driver_.cuEventDestroy_(event);
    individually(0);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : could_not_wait(result);
  }
  return CUDA_ERROR_INVALID_VALUE;  // no allocation starts there: what the driver says to that
}

bool StepPlayer::record_is_held(CUevent event) const {
  return event && std::find(held_events_.begin(), held_events_.end(), event) != held_events_.end();
}

bool StepPlayer::wait_is_held(CUevent event) const {
  return event && std::any_of(held_.begin(), held_.end(), [&](std::uint32_t index) {
           return schedule_.ops[index].kind == CallKind::event_wait && live_.live(index).event == event;
         });
}

// Whether the program could notice through `call` that held ops have not been submitted.
bool StepPlayer::observes(const Call& call) const {
  if (held_.empty()) return false;
  // An event of an earlier step has been submitted long ago: waiting for it needs nothing of ours.
  if (call.kind == CallKind::event_synchronize) return record_is_held(call.event) || record_is_held(call.event2);
  if (!is_op(call.kind) && call.kind != CallKind::stream_synchronize) return true;
  if (record_is_held(call.event)) return true;
  // What is waited for is the event as it is now.
  if (is_op(call.kind) && (wait_is_held(call.event) || wait_is_held(call.event2))) return true;
  // A graph of the program's may hold a wait for one of these events.
  if (call.kind == CallKind::graph_launch && !held_events_.empty()) return true;
  if (call.kind != CallKind::stream_synchronize && call.host == HostEffect::observe) return true;
  for (const std::uint32_t index : held_) {
    const StreamRef& mine = streams_[schedule_.ops[index].stream];
    if (call.stream == mine) return true;
    // Two streams are ordered with each other only where one of them is the legacy default stream and the other blocks.
    if (!call.stream.is_legacy() && !mine.is_legacy()) continue;
    if (context_.stream_kind(call.stream.is_legacy() ? mine : call.stream) != StreamKind::non_blocking) return true;
  }
  return false;
}

void StepPlayer::end_step(bool passes, std::uint32_t thread) {
  cursor_.reset();
  last_due_ = passes;
  last_thread_ = thread;
  if (tried_) tuner_.done(clock_.late());
  tried_ = false;
  clock_due_ = passes && clock_.running();
  if (!clock_due_ && clock_.running()) end_clock();
  as_recorded_ = true;
  if (pass_step_) by_graphs_ = false;
  if (state_ == State::bound && by_graphs_) {
    ++counters_.steps_replayed;
  } else {
    ++counters_.steps_passed_through;
  }
  if (state_ == State::searching) step_complete_ = true;
}

void StepPlayer::end_clock() {
  const CurrentContext current(driver_, cu_context_);
  keep_order(streams_.gather());
  clock_.end(streams_.launch().handle);
}

void StepPlayer::diverge(const char* reason, std::uint32_t at_op) {
  if (state_ == State::bound) ++counters_.divergences;
  if (state_ == State::bound && ++counters_.reasons[reason] == 1 && at_op != kNone) {
    const ScheduleOp& op = schedule_.ops[at_op];
    news_ =
        "a step went another way than the schedule at op " + std::to_string(at_op) + " (" + std::string(name(op.kind));
    if (op.kind == CallKind::launch && op.function != kNone)
      news_ += " " + schedule_.functions[op.function].name.substr(0, 100);
    news_ += std::string("): ") + reason;
    if (live_.mismatch_at() != kNone)
      news_ += ", in byte " + std::to_string(live_.mismatch_at()) + " of its parameters";
  }
  cursor_.reset();
  placing_ = kNone;
  tried_ = false;
  clock_.cancel();
}

void StepPlayer::stand_aside(std::string why) {
  if (aside_.empty()) aside_ = std::move(why);
}

// Not where the reason is found: that may be in the midst of submitting, of which the rest comes first, and which may
// put more on the launch stream for the others to come behind.
void StepPlayer::leave() {
  flush();
  streams_.release();
}

void StepPlayer::after(const Call& call, CUresult result) {
  answered(call, result);
  if (!aside_.empty()) leave();
}

void StepPlayer::answered(const Call& call, CUresult result) {
  const bool good = result == CUDA_SUCCESS;
  switch (call.kind) {
    case CallKind::alloc:
    case CallKind::alloc_async:
      if (good && call.memory == MemoryKind::external)
        stand_aside("the program uses memory that something else reaches as well");
      if (good) {
        memory_.add({call.address, call.size, call.memory});
        objects_.changed();
        if (placing_ != kNone && placing_thread_ == call.thread && call.kind == CallKind::alloc_async) {
          objects_.place(schedule_.ops[placing_].object, call.address);
          placing_ = kNone;
        }
      }
      break;
    case CallKind::hidden:
      if (!good || (call.texture && schedule_.textures)) break;
      stand_aside(std::string("the program uses ") + call.note +
                  ", by which memory may be reached that no parameter names");
      break;
    case CallKind::context_end:
      // Most ends were seen coming; that of a primary context only shows when the driver has answered.
      if (good && aside_.empty()) context_ended(call);
      break;
    case CallKind::capture_begin:
      if (!good) forget_capture(call.stream);
      break;
    case CallKind::capture_end:
      // A capture may go on after a call that should have ended it, and end in one that failed.
      if (!is_captured(call)) forget_capture(call.stream);
      break;
    default:
      break;
  }
  const std::uint32_t stream = is_op(call.kind) ? streams_.find(call.stream) : kNone;
  const bool followed = stream != kNone;
  if (followed && streams_.count() > 1) streams_.landed(stream, !call.of_step && may_wait(call.kind));
  const bool last = last_due_ && followed && call.thread == last_thread_;
  if (last) last_due_ = false;
  if (clock_due_ && last) {
    clock_due_ = false;
    end_clock();
  }
  if (good && call.host == HostEffect::observe) judge_audit();
  // What the driver refused is not part of a step. Ops that are held have not been seen by it.
  if (!good && call.kind == CallKind::event_record) live_.forget_record(call.event);
  if (good || !followed) return;
  if (last) as_recorded_ = step_complete_ = false;
  if (!cursor_.begun()) return;
  if (streams_.count() > 1) flush();
  if (held_.empty()) diverge("a call that failed");
}

}  // namespace nimble
