#include "replayer/step/step_run.h"

#include <string>

#include "replayer/bystanders/bystanders.h"
#include "replayer/match/op_text.h"

namespace nimble {

namespace {

// Whether the op may have to wait for something on the GPU.
bool may_wait(CallKind kind) {
  return kind == CallKind::launch || kind == CallKind::host_function || kind == CallKind::graph_launch ||
         kind == CallKind::event_wait || kind == CallKind::opaque;
}

}  // namespace

StepRun::StepRun(const Uses& uses)
    : schedule_(uses.schedule),
      driver_(uses.driver),
      captures_(uses.captures),
      streams_(uses.streams),
      memory_(uses.memory),
      arena_(uses.arena),
      match_(uses.match),
      cursor_(uses.match.cursor()),
      tuning_(uses.tuning),
      audits_(uses.audits),
      graphs_(uses.graphs),
      onlookers_(uses.onlookers),
      submitter_(uses.submitter),
      binding_(uses.binding),
      errors_(uses.errors),
      standing_(uses.standing),
      counters_(uses.counters),
      before_(uses.schedule) {}

Answer StepRun::on_op(Call& call) {
  if (captures_.any()) return outside(call);
  if (!cursor_.begun()) return begin_step(call);
  // A direct op may have been the last that a segment was waiting for.
  submitter_.submit_ready();
  if (standing_.aside()) return outside(call);
  if (binding_.bound() && !streams_.context_is_current()) {
    submitter_.flush();
    diverge("the step's context was not current", kNone);
    return outside(call);
  }
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
    // Other kinds of step would have continued. It is too late to time the end.
    cursor_.take_for(whole);
    tuning_.cancel();
    end_step(false, call.thread);
  } else {
    submitter_.flush();
    diverge(reason, expected);
  }
  return on_op(call);  // it may be the first op of a step
}

// The op that the call matches; the step may turn out to be of another kind.
std::uint32_t StepRun::next_op(std::uint32_t stream, const Call& call, const char*& reason) {
  const std::uint32_t kind = cursor_.kind();
  const std::uint32_t index = match_.next_op(stream, call, reason);
  if (cursor_.kind() != kind) take_for(cursor_.kind());
  return index;
}

std::uint32_t StepRun::op_that_begins_a_stream(const Call& call) {
  const std::uint32_t kind = cursor_.kind();
  const std::uint32_t index = match_.op_that_begins_a_stream(call, binding_.bound());
  if (cursor_.kind() != kind) take_for(cursor_.kind());
  return index;
}

// The step is not of the assumed kind.
void StepRun::take_for(std::uint32_t kind) {
  submitter_.progress().take_for(kind);
  if (binding_.bound() && tuning_.take_for(kind, graphs_.way()) == Way::own) pass_rest();
}

// From here on this step's ops go to the driver as they come.
void StepRun::pass_rest() {
  if (submitter_.progress().passes()) return;
  submitter_.progress().pass(true);
  tuning_.cancel();
  submitter_.flush();
}

// Nothing of a step has come yet: the call may be its first op.
Answer StepRun::begin_step(Call& call) {
  if (standing_.aside()) return outside(call);
  if (onlookers_.wants_program_order() && !captures_.any()) keep_program_order();
  const std::uint32_t stream = streams_.find(call.stream);
  if (binding_.bound() && (stream == kNone || !streams_.context_is_current())) return outside(call);
  // Not earlier: other ops between two steps may pass without coming here (replayer/bystanders/bystanders.h).
  if (binding_.is_due() && stream != kNone && match_.may_begin_step(stream, call)) binding_.bind();
  audits_.judge();
  // Other streams wait for an audit only during replay.
  if (binding_.bound() && !captures_.any() && !audits_.pending()) tuning_.read();
  if (standing_.aside()) return outside(call);
  memory_.objects().begin_step();
  match_.live().begin_step();
  arena_.plan().begin_step(binding_.bound());
  const char* reason = nullptr;
  const std::uint32_t index =
      binding_.bound() ? match_.next_op(stream, call, reason) : match_.op_that_begins_a_stream(call, false);
  // A wait does not begin a step, unless it did in the recording.
  if (index == kNone || (call.kind == CallKind::event_wait && !match_.is_first(index))) return outside(call);
  if (!binding_.bound()) {
    binding_.forget_due();  // the new step tells anew what the last one told
    streams_.forget();
    if (!streams_.use_current_context()) return outside(call);
  }
  streams_.set(schedule_.ops[index].stream, call.stream);
  begin_matched_step();
  return standing_.aside() ? outside(call) : on_matched(index, call);
}

// Decides how the beginning step is submitted.
void StepRun::begin_matched_step() {
  MemoryPlan& plan = arena_.plan();
  StepProgress& progress = submitter_.progress();
  progress.begin_step(cursor_.kind());
  last_due_ = false;
  if (plan.serves() && !streams_.settled()) plan.pass();
  const bool as_before = before_.begin_step();
  progress.pass(!plan.serves() || !as_before);
  if (plan.serves()) {
    arena_.place_objects();
    standing_.keep_order(streams_.begin_step());
    if (standing_.aside()) return;
  } else {
    plan.forget_places();
  }
  audits_.begin_step(plan.serves());
  choose_way();
}

void StepRun::choose_way() {
  StepProgress& progress = submitter_.progress();
  // Drops the clock's state of a step whose last op the driver has not had.
  if (!binding_.bound() || progress.passes() || audits_.run() != Audit::Run::graphs) return tuning_.pass_step();
  const Way way = tuning_.begin_step(cursor_.kind());
  progress.pass(way == Way::own);
  if (way != Way::own) graphs_.use(way);
}

Answer StepRun::on_matched(std::uint32_t index, Call& call) {
  cursor_.advance(index);
  const bool last = cursor_.complete();
  const ScheduleOp& op = schedule_.ops[index];
  const OpMatch& live = match_.live();
  const StepProgress& progress = submitter_.progress();
  const bool may_hold = is_held(op.submit);
  Answer answer = CUDA_SUCCESS;
  // The graphs' order would not keep that wait; or the driver may refuse; or there is no graph yet.
  if (live.unknown_wait() || live.unknown_shape() || (may_hold && !graphs_.is_built(op.segment))) pass_rest();
  if (op.submit == Submit::plan && arena_.plan().serves()) {
    serve(op, call);
  } else if (may_hold && !progress.passes() && !progress.passes(op.segment)) {
    const bool changed = op.submit == Submit::graph && (live.changed(index) || !graphs_.is_up_to_date(op.segment));
    submitter_.held().hold(index, call, changed);
  } else {
    answer = let_pass(index, call, last);
  }
  if (answer == CUDA_SUCCESS) {
    submitter_.submit_ready();
    if (errors_.any() && errors_.may_tell(call)) answer = errors_.take();
  }
  if (last) end_step(!answer, call.thread);
  return answer;
}

// Serves the step's own memory from the plan.
void StepRun::serve(const ScheduleOp& op, Call& call) {
  if (op.kind == CallKind::alloc_async) {
    arena_.take(op.object, call);
    ++counters_.allocations_served;
  } else {
    arena_.put_back(op.object, call);
  }
}

// While binding, after an early flush in this segment, and for ops that no graph holds.
Answer StepRun::let_pass(std::uint32_t index, Call& call, bool last) {
  const ScheduleOp& op = schedule_.ops[index];
  const HeldOps& held = submitter_.held();
  ++counters_.ops_passed_through;
  // Held ops before it in the schedule may have to precede it, and so may those that its event refers to. And if it
  // ends the step, no graph can follow it.
  if (last || held.any_before(index) || held.has_record(call.event) || held.has_wait(call.event)) submitter_.flush();
  submitter_.individually(op.stream);
  call.of_step = true;
  if (call.kind == CallKind::alloc_async)
    arena_.plan().allocates(op.submit == Submit::plan ? op.object : kNone, call.thread);
  return call.kind == CallKind::free_async ? release(call, 0) : std::nullopt;
}

Answer StepRun::release(const Call& call, std::uint64_t size) {
  if (arena_.holds(call.memory.address))
    return releases_allocation(call) ? arena_.release(call, binding_.bound()) : Answer();
  memory_.release(call.memory.address, size);
  return std::nullopt;
}

Answer StepRun::outside(Call& call) {
  ++counters_.ops_passed_through;
  if (is_captured(call)) return std::nullopt;
  if (submitter_.held().shows(call)) submitter_.flush_early();
  // The rest of the step may follow pointers that the call leaves, which its schedule does not know. Before the call's
  // stream catches up: held ops precede the call.
  if (may_leave_pointers(call.kind) && before_.disturb() && cursor_.begun()) pass_rest();
  const std::uint32_t stream = call.has_stream ? streams_.find(call.stream) : kNone;
  if (stream != kNone) standing_.keep_order(streams_.outside(stream, may_wait(call.kind)));
  OpMatch& live = match_.live();
  for (CUevent event : {call.event, call.event2}) {
    if (event && call.kind != CallKind::event_wait) live.forget_record(event);
  }
  if (may_record(call.kind)) live.forget_records();
  if (call.has_stream && stream == kNone) audits_.elsewhere(call);
  return call.kind == CallKind::free_async ? release(call, 0) : std::nullopt;
}

void StepRun::end_step(bool passes, std::uint32_t thread) {
  const std::uint32_t kind = cursor_.kind();
  cursor_.remember();
  cursor_.reset();
  last_due_ = passes;
  last_thread_ = thread;
  tuning_.end_step(kind, passes);
  before_.end_step();
  StepProgress& progress = submitter_.progress();
  if (progress.passes()) progress.by_calls();
  if (binding_.bound() && progress.by_graphs()) {
    ++counters_.steps_replayed;
    ++counters_.kinds[kind].steps_replayed;
  } else {
    ++counters_.steps_passed_through;
    ++counters_.kinds[kind].steps_passed_through;
  }
  // If others are bound, its memory has to be at their addresses.
  if (!binding_.bound() || (arena_.plan().serves() && !graphs_.are_built(kind))) binding_.note(kind);
}

void StepRun::diverge(const char* reason, std::uint32_t at_op) {
  if (binding_.bound()) {
    ++counters_.divergences;
    if (++counters_.reasons[reason] == 1 && at_op != kNone) tell_of_divergence(reason, at_op);
  } else {
    search_.note(cursor_.count(), cursor_.length(), at_op, reason,
                 at_op != kNone ? match_.live().mismatch_at() : kNone);
  }
  cursor_.reset();
  arena_.plan().allocates(kNone, 0);
  tuning_.cancel();
}

void StepRun::tell_of_divergence(const char* reason, std::uint32_t at_op) {
  std::string news = "a step deviated from the schedule at " + op_text(schedule_, at_op) + ": " + reason;
  const std::uint32_t at = match_.live().mismatch_at();
  if (at != kNone) news += ", in byte " + std::to_string(at) + " of its parameters";
  standing_.tell(std::move(news));
}

std::string StepRun::why_not_found() {
  if (cursor_.begun()) search_.note(cursor_.count(), cursor_.length(), kNone, "the program ended", kNone);
  return search_.why(schedule_);
}

void StepRun::unbind(const char* why) {
  submitter_.flush_early();
  stop(why);
  onlookers_.end().mark();
  onlookers_.end().forget_stream();
  binding_.unbind();
}

void StepRun::keep_program_order() {
  if (graphs_.keeps_program_order()) return;
  onlookers_.want_program_order();
  if (captures_.any()) return;  // nothing of ours may interfere
  unbind("others access its memory");
  graphs_.keep_program_order();
  onlookers_.keep_program_order();
  standing_.tell(
      "unordered ops on other streams touch the step's memory: from now on its graphs keep the program's "
      "order");
}

void StepRun::answered(const Call& call, CUresult result) {
  const bool good = result == CUDA_SUCCESS;
  if (call.kind == CallKind::launch && call.of_step) match_.live().launched(call, good);
  const std::uint32_t stream = is_op(call.kind) ? streams_.find(call.stream) : kNone;
  const bool followed = stream != kNone;
  if (followed && streams_.count() > 1) streams_.landed(stream, !call.of_step && may_wait(call.kind));
  const bool last = last_due_ && followed && call.thread == last_thread_;
  if (last) {
    last_due_ = false;
    tuning_.landed();
  }
  if (good && call.host == HostEffect::observe) audits_.judge();
  // A call that the driver refused is not part of a step. It has not seen held ops.
  if (!good && call.kind == CallKind::event_record) match_.live().forget_record(call.event);
  if (good || !followed) return;
  if (last) {
    before_.refuse_last();
    binding_.forget_due();
  }
  if (!cursor_.begun()) return;
  if (streams_.count() > 1) submitter_.flush();
  if (submitter_.held().empty()) diverge("a call that failed");
}

}  // namespace nimble
