#include "replayer/step_player.h"

#include <algorithm>

#include "replayer/current_context.h"

namespace nimble {

StepPlayer::StepPlayer(Schedule schedule, CallContext& context, const DriverApi& driver, Counters& counters)
    : schedule_(std::move(schedule)),
      context_(context),
      driver_(driver),
      counters_(counters),
      objects_(schedule_, memory_),
      live_(schedule_, context, memory_, objects_,
            Reach(driver.cuPointerGetAttribute_, driver.cuDeviceGetCount_, driver.cuDeviceGetAttribute_)),
      up_to_date_(schedule_.segments.size(), false),
      last_of_segment_(schedule_.segments.size(), 0),
      in_graphs_(schedule_.objects.size(), false),
      clock_(driver) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < schedule_.segments.size(); ++i) {
    const std::vector<std::uint32_t>& order = schedule_.segments[i].order;
    last_of_segment_[i] = *std::max_element(order.begin(), order.end());
    longest = std::max(longest, order.size());
  }
  for (const ScheduleOp& op : schedule_.ops) {
    for (const ScheduleParam& param : op.pointers) in_graphs_[param.pointer.object] = true;
    if (op.kind == CallKind::launch && op.submit == Submit::graph && !op.barrier)
      for (const ScheduleGlobal& global : schedule_.functions[op.function].globals) in_graphs_[global.object] = true;
    for (const SchedulePointer* pointer : {&op.dst, &op.src}) {
      if (pointer->object != kNone) in_graphs_[pointer->object] = true;
    }
  }
  held_.reserve(longest);
  held_events_.reserve(longest);
  changed_.reserve(longest);
}

std::optional<CUresult> StepPlayer::before(Call& call) {
  if (call.address_range) return answer_address_range(call);
  switch (call.ends) {
    case Ends::nothing:
      break;
    case Ends::event: {
      const auto answer = record_is_held(call.event) ? flush_early() : std::nullopt;
      live_.forget_event(call.event);
      return answer;
    }
    case Ends::stream:
    case Ends::green_context:
    case Ends::code: {
      const auto answer = flush_early();
      // Graphs hold functions and are launched on the stream: neither may go on being used. The stream may be one of
      // the green context's.
      const bool ours = (call.ends == Ends::stream && call.stream == stream_) || call.ends == Ends::green_context;
      if (call.ends == Ends::code || ours) unbind();
      if (ours) stream_ = {};
      if (call.ends == Ends::stream) forget_capture(call.stream);
      return answer;
    }
  }
  if (!call.traced) return call.host == HostEffect::observe ? flush_early() : std::nullopt;
  switch (call.kind) {
    case CallKind::alloc:
      return std::nullopt;
    case CallKind::free:
      return on_free(call);
    case CallKind::hidden:
      return flush_early();  // whether it comes to that, the driver's answer tells
    case CallKind::context_end: {
      const auto answer = flush_early();
      context_ended(call);
      return answer;
    }
    case CallKind::capture_begin: {
      // From here on the stream collects a graph of the program's: nothing of ours may come in between. Counted before
      // the driver knows, so that no other thread's call makes us do something that a capture forbids.
      const auto answer = flush_early();
      if (position_ != 0) diverge("a capture began");
      if (!answer) captures_.insert(call.stream.key);
      return answer;
    }
    case CallKind::capture_end:
      return std::nullopt;
    default:
      break;
  }
  if (!is_op(call.kind)) return observes(call) ? flush_early() : std::nullopt;
  return on_op(call);
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
  const bool follows = position_ != 0 || state_ == State::bound;
  return {.stream = follows ? stream_.key : 0,
          .legacy = follows && stream_.is_legacy(),
          .holding = !held_.empty(),
          .capturing = !captures_.empty(),
          .arena = arena_,
          .arena_bytes = schedule_.arena_bytes,
          .closing = clock_due_,
          .auditing = audit_ && audit_->pending()};
}

std::optional<CUresult> StepPlayer::before_aside(Call& call) {
  if (call.address_range) return answer_address_range(call);
  if ((call.kind == CallKind::free || call.kind == CallKind::free_async) && in_arena(call.address))
    return free_in_arena(call);
  return std::nullopt;
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

const char* StepPlayer::mismatch(const Call& call) {
  if (const char* reason = live_.match(position_, call)) return reason;
  const ScheduleOp& op = schedule_.ops[position_];
  const bool serve = state_ == State::bound && op.submit == Submit::plan && op.kind == CallKind::alloc_async;
  return serve && is_left_over(op.object) ? "memory of an earlier step is still in use" : nullptr;
}

void StepPlayer::note_leftovers() {
  leftovers_.clear();
  for (std::uint32_t i = 0; objects_.all_taken() != 0 && i < schedule_.objects.size(); ++i) {
    if (objects_.taken(i)) leftovers_.push_back(i);
  }
}

// Within a step the plan lets no two objects meet that the program has at the same time.
bool StepPlayer::is_left_over(std::uint32_t object) const {
  const ScheduleObject& mine = schedule_.objects[object];
  return std::any_of(leftovers_.begin(), leftovers_.end(), [&](std::uint32_t other) {
    const ScheduleObject& its = schedule_.objects[other];
    const bool apart =
        mine.plan_offset + mine.size <= its.plan_offset || its.plan_offset + its.size <= mine.plan_offset;
    return objects_.taken(other) && (other == object || !apart);
  });
}

std::optional<CUresult> StepPlayer::on_op(Call& call) {
  if (!captures_.empty()) return outside(call);
  if (position_ == 0) {
    // A per-thread default stream cannot be named from the watchdog's thread.
    const bool candidate = !call.stream.is_per_thread() && (state_ == State::searching || call.stream == stream_);
    if (!candidate) return outside(call);
    // Not earlier: other ops between two steps may pass without coming here (replayer/bystanders.h).
    if (state_ == State::searching && step_complete_ && call.stream == stream_ &&
        could_begin(schedule_, context_, call))
      bind();
    judge_audit();
    read_clock();
    if (!aside_.empty()) return outside(call);
    objects_.begin_step();
    note_leftovers();
    if (mismatch(call)) return outside(call);
    by_graphs_ = true;
    pass_step_ = schedule_.carries && !as_recorded_;
    as_recorded_ = false;
    passing_segment_ = kNone;
    if (audit_) run_ = audit_->begin_step(ops_elsewhere(), state_ == State::bound);
    choose_way();
    if (state_ == State::searching) {
      stream_ = call.stream;
      driver_.cuCtxGetCurrent_(&cu_context_);
    }
    return on_matched(call);
  }
  if (!(call.stream == stream_)) return outside(call);
  const char* const reason = mismatch(call);
  if (!reason) return on_matched(call);
  const CUresult failed = flush();
  diverge(reason, true);
  if (failed != CUDA_SUCCESS) return failed;
  return on_op(call);  // it may be the first op of a step
}

std::optional<CUresult> StepPlayer::on_matched(Call& call) {
  const std::uint32_t index = position_++;
  const bool last = position_ == schedule_.ops.size();
  const ScheduleOp& op = schedule_.ops[index];
  std::optional<CUresult> answer;
  if (op.submit == Submit::plan && state_ == State::bound) {
    objects_.take(op.object, op.kind == CallKind::alloc_async);
    if (op.kind == CallKind::alloc_async) {
      call.address = arena_ + schedule_.objects[op.object].plan_offset;
      objects_.use(op.object);
      ++counters_.allocations_served;
    }
    answer = CUDA_SUCCESS;
  } else if (op.submit == Submit::graph && state_ == State::bound && passing_segment_ != op.segment && !pass_step_) {
    held_.push_back(index);
    ++holds_;
    if (live_.changed(index) || !up_to_date_[op.segment]) changed_.push_back(index);
    if (op.kind == CallKind::event_record) held_events_.push_back(call.event);
    answer = CUDA_SUCCESS;
    if (index == last_of_segment_[op.segment]) answer = submit_segment(op.segment);
  } else {
    // Passes: while binding, after an early flush in this segment, and for ops that no graph holds.
    ++counters_.ops_passed_through;
    if (call.kind == CallKind::alloc_async) {
      placing_ = op.submit == Submit::plan ? index : kNone;
      placing_thread_ = call.thread;
    }
    if (call.kind == CallKind::free_async) {
      if (in_arena(call.address)) {
        answer = free_in_arena(call);
      } else {
        memory_.remove(call.address);
        if (op.submit != Submit::plan) objects_.freed(call.address);
      }
    }
  }
  if (last) end_step(!answer);
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

std::optional<CUresult> StepPlayer::outside(Call& call) {
  ++counters_.ops_passed_through;
  if (is_captured(call)) return std::nullopt;
  std::optional<CUresult> answer;
  if (observes(call)) answer = flush_early();
  if (audit_ && call.has_stream && !(call.stream == stream_)) {
    ++ops_elsewhere_;
    if (audit_->pending() && !answer &&
        driver_.cuStreamWaitEvent_(call.stream.handle, audit_->done(), 0) != CUDA_SUCCESS)
      stand_aside("a stream cannot wait for an audit");
  }
  if (answer) return answer;
  if (call.kind != CallKind::free_async) return std::nullopt;
  if (in_arena(call.address)) return free_in_arena(call);
  memory_.remove(call.address);
  objects_.freed(call.address);
  return std::nullopt;
}

std::optional<CUresult> StepPlayer::on_free(Call& call) {
  std::optional<CUresult> answer;
  if (call.host == HostEffect::observe) answer = flush_early();
  if (answer) return answer;
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
    // cuMemFree takes it that all accesses are over. Where our stream is gone, nobody will use the memory again.
    if (call.kind == CallKind::free || !stream_.key || call.stream == stream_) return CUDA_SUCCESS;
    const CurrentContext current(driver_, cu_context_);
    // The next use of the memory is on our stream: it must come after what the program's stream still does with it.
    CUevent event = nullptr;
    CUresult result = driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(event, call.stream.handle);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(stream_.handle, event, 0);
    if (event) driver_.cuEventDestroy_(event);
    return result;
  }
  return CUDA_ERROR_INVALID_VALUE;  // no allocation starts there: what the driver says to that
}

bool StepPlayer::record_is_held(CUevent event) const {
  return event && std::find(held_events_.begin(), held_events_.end(), event) != held_events_.end();
}

// Whether the program could notice through `call` that held ops have not been submitted.
bool StepPlayer::observes(const Call& call) const {
  if (held_.empty()) return false;
  // An event of an earlier step has been submitted long ago: waiting for it needs nothing of ours.
  if (call.kind == CallKind::event_synchronize) return record_is_held(call.event) || record_is_held(call.event2);
  if (!is_op(call.kind) && call.kind != CallKind::stream_synchronize) return true;
  if (call.stream == stream_) return true;
  if (record_is_held(call.event)) return true;
  // A graph of the program's may hold a wait for one of these events.
  if (call.kind == CallKind::graph_launch && !held_events_.empty()) return true;
  if (call.kind != CallKind::stream_synchronize && call.host == HostEffect::observe) return true;
  // Another stream: it is ordered with ours only where one of them is the legacy default stream and the other blocks.
  if (!call.stream.is_legacy() && !stream_.is_legacy()) return false;
  const StreamRef& other = call.stream.is_legacy() ? stream_ : call.stream;
  return context_.stream_kind(other) != StreamKind::non_blocking;
}

void StepPlayer::end_step(bool passes) {
  position_ = 0;
  if (tried_) tuner_.done(clock_.late());
  tried_ = false;
  clock_due_ = passes && clock_.running();
  if (!clock_due_ && clock_.running()) {
    const CurrentContext current(driver_, cu_context_);
    clock_.end(stream_.handle);
  }
  as_recorded_ = true;
  if (pass_step_) by_graphs_ = false;
  if (state_ == State::bound && by_graphs_) {
    ++counters_.steps_replayed;
  } else {
    ++counters_.steps_passed_through;
  }
  if (state_ == State::searching) step_complete_ = true;
}

void StepPlayer::diverge(const char* reason, bool at_op) {
  if (state_ == State::bound && ++counters_.divergences[reason] == 1 && at_op) {
    const ScheduleOp& op = schedule_.ops[position_];
    news_ = "a step went another way than the schedule at op " + std::to_string(position_) + " (" +
            std::string(name(op.kind));
    if (op.kind == CallKind::launch && op.function != kNone)
      news_ += " " + schedule_.functions[op.function].name.substr(0, 100);
    news_ += std::string("): ") + reason;
    if (live_.mismatch_at() != kNone)
      news_ += ", in byte " + std::to_string(live_.mismatch_at()) + " of its parameters";
  }
  position_ = 0;
  placing_ = kNone;
  tried_ = false;
  clock_.cancel();
}

void StepPlayer::stand_aside(std::string why) {
  if (aside_.empty()) aside_ = std::move(why);
}

void StepPlayer::after(const Call& call, CUresult result) {
  const bool good = result == CUDA_SUCCESS;
  switch (call.kind) {
    case CallKind::alloc:
    case CallKind::alloc_async:
      if (good && call.memory == MemoryKind::external) {
        flush();  // ops may have come from other threads since
        stand_aside("the program uses memory that something else reaches as well");
      }
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
      flush();  // ops may have come from other threads since
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
  if (clock_due_ && is_op(call.kind) && call.stream == stream_) {
    clock_due_ = false;
    const CurrentContext current(driver_, cu_context_);
    clock_.end(stream_.handle);
  }
  if (good && call.host == HostEffect::observe) judge_audit();
  // What the driver refused is not part of a step. Ops that are held have not been seen by it.
  if (!good && is_op(call.kind) && call.stream == stream_ && position_ != 0 && held_.empty())
    diverge("a call that failed");
}

}  // namespace nimble
