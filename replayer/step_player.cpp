#include "replayer/step_player.h"

#include <algorithm>

#include "replayer/driver/current_context.h"

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
      rests_on_pointers_(schedule_.rests_on_pointers()),
      paths_(schedule_),
      context_(context),
      driver_(driver),
      counters_(counters),
      objects_(schedule_, memory_),
      live_(schedule_, context, memory_, objects_,
            Reach(driver.cuPointerGetAttribute_, driver.cuDeviceGetCount_, driver.cuDeviceGetAttribute_)),
      cursor_(schedule_, paths_),
      streams_(schedule_, context, driver),
      passing_(schedule_.segments.size(), 0),
      up_to_date_(schedule_.segments.size(), false),
      tuners_(paths_.kinds(), Tuner(Tune::off)),
      clock_(driver) {
  find_relaxed();
  counters_.kinds.resize(paths_.kinds());
  drop_graphs();
  // On several streams ops of later segments may come before one is complete.
  std::size_t longest = schedule_.streams.size() > 1 ? schedule_.ops.size() : 0;
  for (const ScheduleSegment& segment : schedule_.segments)
    longest = std::max<std::size_t>(longest, segment.last - segment.first + 1);
  held_.reserve(longest);
  held_events_.reserve(longest);
  changed_.reserve(longest);
  batch_.reserve(longest);
}

void StepPlayer::tune(Tune when) {
  if (!driver_.cuEventElapsedTime_) when = Tune::off;
  tuners_.clear();
  // Of steps that others go on from nobody can tell when they are over.
  for (std::uint32_t kind = 0; kind < cursor_.kinds(); ++kind) {
    const ScheduleChoice known = kind < schedule_.tuned.size() ? schedule_.tuned[kind] : ScheduleChoice{};
    if (cursor_.goes_on(kind)) {
      tuners_.emplace_back(Tune::off);
    } else if (known.way == kNone) {
      tuners_.emplace_back(when);
    } else {
      tuners_.emplace_back(when, static_cast<Way>(known.way), known.us);
    }
  }
}

std::optional<CUresult> StepPlayer::before(Call& call) {
  const auto answer = play(call);
  if (!aside_.empty()) leave();
  return answer;
}

std::optional<CUresult> StepPlayer::play(Call& call) {
  if (call.question == Question::pool) return ask_of_pool(call);
  if (call.question == Question::memory && (!call.sets || in_arena(call.address))) {
    if (call.sets) flush_early();
    if (call.sets && call.value != 0) stand_aside("another device may reach the program's memory");
    return answer_question(call);
  }
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
      // The device's pool outlives the context.
      if (!call.context || call.context == arena_context_) give_arena_back();
      context_ended(call);
      return std::nullopt;
    }
    case CallKind::capture_begin: {
      // From here on the stream collects a graph of the program's: nothing of ours may come in between. Counted before
      // the driver knows, so that no other thread's call makes us do something that a capture forbids.
      flush_early();
      if (cursor_.begun()) diverge("a capture began");
      streams_.release();
      mark_end();
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

std::optional<CUresult> StepPlayer::on_op(Call& call) {
  if (!captures_.empty()) return outside(call);
  if (!cursor_.begun()) return begin_step(call);
  // A direct op may have been the last that a segment had to wait for.
  submit_ready();
  if (!aside_.empty()) return outside(call);
  const std::uint32_t stream = streams_.find(call.stream);
  if (stream == kNone) {
    const std::uint32_t index = streams_.count() > 1 ? op_that_begins_a_stream(call) : kNone;
    if (index == kNone) return outside(call);
    streams_.set(schedule_.ops[index].stream, call.stream);
    return on_matched(index, call);
  }
  const std::uint32_t expected = cursor_.next(stream);
  const char* reason = nullptr;
  if (const std::uint32_t index = next_op(stream, call, reason); index != kNone) return on_matched(index, call);
  if (const std::uint32_t whole = cursor_.whole(); whole != kNone) {
    // Other kinds of step would have gone on. When it was over, no clock can tell now.
    cursor_.take_for(whole);
    tried_ = false;
    clock_.cancel();
    end_step(false, call.thread);
  } else {
    flush();
    diverge(reason, expected);
  }
  return on_op(call);  // it may be the first op of a step
}

// Nothing of a step has come yet: the call may be its first op.
std::optional<CUresult> StepPlayer::begin_step(Call& call) {
  if (!aside_.empty()) return outside(call);
  if (order_due_ && captures_.empty()) keep_program_order();
  const std::uint32_t stream = streams_.find(call.stream);
  if (state_ == State::bound && stream == kNone) return outside(call);
  // Not earlier: other ops between two steps may pass without coming here (replayer/match/unrelated_calls.h).
  if (to_bind_ != kNone && stream != kNone && may_begin_step(stream, call)) bind(std::exchange(to_bind_, kNone));
  judge_audit();
  read_clock();
  if (!aside_.empty()) return outside(call);
  objects_.begin_step();
  live_.begin_step();
  note_leftovers();
  serving_ = state_ == State::bound;
  const char* reason = nullptr;
  const std::uint32_t index =
      state_ == State::searching ? op_that_begins_a_stream(call) : next_op(stream, call, reason);
  // A wait begins no step, unless the recorded one did.
  if (index == kNone || (call.kind == CallKind::event_wait && index != paths_.ops(cursor_.kind()).front()))
    return outside(call);
  if (state_ == State::searching) {
    to_bind_ = kNone;  // what the last step has told is told anew from here on
    streams_.forget();
    CUcontext context = nullptr;
    if (driver_.cuCtxGetCurrent_(&context) != CUDA_SUCCESS || !context) return outside(call);
    cu_context_ = context;
  }
  streams_.use_context(cu_context_);
  streams_.set(schedule_.ops[index].stream, call.stream);
  begin_matched_step();
  return aside_.empty() ? on_matched(index, call) : outside(call);
}

// How the step that begins is to be submitted.
void StepPlayer::begin_matched_step() {
  ++step_;
  next_segment_ = 0;
  find_segment_end();
  last_due_ = false;
  by_graphs_ = true;
  if (serving_ && !streams_.settled()) serving_ = false;
  pass_step_ = !serving_ || (schedule_.carries && (!as_recorded_ || disturbed_));
  as_recorded_ = disturbed_ = false;
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
  // The graphs' order would not keep that wait; or the driver may refuse; or there is no graph yet.
  if (live_.unknown_wait() || live_.unknown_shape() || (is_held(op.submit) && !graphs_[op.segment].built()))
    pass_rest();
  if (op.submit == Submit::plan && serving_) {
    objects_.take(op.object, op.kind == CallKind::alloc_async);
    if (op.kind == CallKind::alloc_async) {
      call.address = arena_ + schedule_.objects[op.object].plan_offset;
      objects_.use(op.object);
      ++counters_.allocations_served;
    } else {
      answers_.gone(call.address);
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
        unwatch(call.address, 0);
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
  if (may_leave_pointers(call.kind)) {
    disturbed_ = true;
    // What of the step is still to come may follow them, which its schedule knows nothing of. Before the call's stream
    // is brought up to date: what is held comes before the call.
    if (rests_on_pointers_ && cursor_.begun()) pass_rest();
  }
  const std::uint32_t stream = call.has_stream ? streams_.find(call.stream) : kNone;
  if (stream != kNone) keep_order(streams_.outside(stream, may_wait(call.kind)));
  for (CUevent event : {call.event, call.event2}) {
    if (event && call.kind != CallKind::event_wait) live_.forget_record(event);
  }
  if (may_record(call.kind)) live_.forget_records();
  if (audit_ && call.has_stream && stream == kNone) {
    ++ops_elsewhere_;
    if (audit_->pending() && driver_.cuStreamWaitEvent_(call.stream.handle, audit_->done(), 0) != CUDA_SUCCESS)
      stand_aside("a stream cannot wait for an audit");
  }
  if (call.kind != CallKind::free_async) return std::nullopt;
  if (in_arena(call.address)) return free_in_arena(call);
  memory_.remove(call.address);
  unwatch(call.address, 0);
  objects_.freed(call.address);
  return std::nullopt;
}

void StepPlayer::end_step(bool passes, std::uint32_t thread) {
  const std::uint32_t kind = cursor_.kind();
  cursor_.remember();
  cursor_.reset();
  last_due_ = passes;
  last_thread_ = thread;
  if (tried_) tuners_[kind].done(clock_.late());
  clock_.of_kind(kind);
  tried_ = false;
  clock_due_ = passes && clock_.running();
  if (!clock_due_ && clock_.running()) end_clock();
  as_recorded_ = true;
  if (pass_step_) by_graphs_ = false;
  if (state_ == State::bound && by_graphs_) {
    ++counters_.steps_replayed;
    ++counters_.kinds[kind].steps_replayed;
  } else {
    ++counters_.steps_passed_through;
    ++counters_.kinds[kind].steps_passed_through;
  }
  // Where others are bound, its memory has to be where they have it.
  if (state_ == State::searching || (serving_ && !is_bound(kind))) to_bind_ = kind;
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
  // The streams may go from now on without being seen.
  if (!std::exchange(left_, true) && failed_ == CUDA_SUCCESS) give_arena_back();
}

void StepPlayer::after(const Call& call, CUresult result) {
  answered(call, result);
  if (!aside_.empty()) leave();
}

void StepPlayer::answered(const Call& call, CUresult result) {
  if (call.question == Question::pool) {  // before replay took over
    pool_asked_ = true;
    return;
  }
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
  if (call.kind == CallKind::launch && call.of_step) live_.launched(call, good);
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
  if (last) {
    as_recorded_ = false;
    to_bind_ = kNone;
  }
  if (!cursor_.begun()) return;
  if (streams_.count() > 1) flush();
  if (held_.empty()) diverge("a call that failed");
}

}  // namespace nimble
