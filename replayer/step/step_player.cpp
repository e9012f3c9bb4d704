#include "replayer/step/step_player.h"

#include <utility>

namespace nimble {

StepPlayer::StepPlayer(Schedule schedule, CallContext& context, const DriverApi& driver, Counters& counters)
    : schedule_(std::move(schedule)),
      paths_(schedule_),
      streams_(schedule_, context, driver),
      errors_(driver, streams_, captures_, standing_),
      memory_(schedule_),
      arena_(schedule_, driver, memory_, streams_, captures_, errors_, standing_),
      match_(schedule_, paths_, context, driver, memory_, arena_.plan(), streams_),
      tuning_(driver, streams_, standing_, paths_.kinds()),
      audits_(schedule_, driver, match_.live(), memory_.objects(), streams_, captures_, standing_, counters),
      graphs_(schedule_, paths_, driver, match_.live(), streams_, tuning_, standing_),
      onlookers_(schedule_, driver, match_.live(), streams_, captures_, memory_, arena_),
      submitter_({schedule_, paths_, context, driver, match_, streams_, graphs_, audits_, onlookers_, errors_,
                  standing_, counters}),
      binding_(schedule_, paths_, driver, memory_, match_.live(), arena_, streams_, graphs_, tuning_),
      run_({schedule_, driver, captures_, streams_, memory_, arena_, match_, tuning_, audits_, graphs_, onlookers_,
            submitter_, binding_, errors_, standing_, counters}) {
  counters.kinds.resize(paths_.kinds());
}

Answer StepPlayer::before(Call& call) {
  const auto answer = play(call);
  if (standing_.aside()) leave();
  return answer;
}

Answer StepPlayer::play(Call& call) {
  if (call.asked.question == Question::pool) return on_question(call);
  if (call.asked.question == Question::memory &&
      (!(call.asked.sets || call.shown) || arena_.holds(call.memory.address)))
    return on_question(call);
  if (call.ends != Ends::nothing) {
    on_end(call);
    return std::nullopt;
  }
  if (!call.traced) {
    if (call.host == HostEffect::observe) submitter_.flush_early();
    return std::nullopt;
  }
  switch (call.kind) {
    case CallKind::alloc:
      return std::nullopt;
    case CallKind::free:
      if (call.host == HostEffect::observe) submitter_.flush_early();
      if (const Answer refused = refuse(call)) return refused;
      return run_.release(call, call.memory.size);
    case CallKind::hidden:
      if (const Answer refused = refuse(call)) return refused;
      submitter_.flush_early();  // the driver's answer will tell whether it ends
      return std::nullopt;
    case CallKind::context_end:
      submitter_.flush_early();
      // The device's pool outlives the context.
      if (!call.context || call.context == arena_.context()) arena_.give_back();
      context_ends(call);
      return std::nullopt;
    case CallKind::capture_begin:
      capture_begins(call.stream);
      return std::nullopt;
    case CallKind::capture_end:
      return std::nullopt;
    default:
      break;
  }
  if (is_op(call.kind)) return run_.on_op(call);
  if (submitter_.held().shows(call)) submitter_.flush_early();
  // A program's wait for a stream, or query of it, must include what the graphs did in its place.
  if (const std::uint32_t stream = call.has_stream ? streams_.find(call.stream) : kNone; stream != kNone)
    standing_.keep_order(streams_.catch_up(stream));
  return std::nullopt;
}

// From here on the stream captures a graph of the program: none of our calls may interfere. Counts before the driver
// call, so that no other thread's call makes us do what a capture forbids.
void StepPlayer::capture_begins(const StreamRef& stream) {
  submitter_.flush_early();
  run_.stop("a capture began");
  streams_.release();
  onlookers_.end().mark();
  captures_.begin(stream);
}

// About memory of the arena, or about the pool that it would be of.
Answer StepPlayer::on_question(Call& call) {
  if (call.asked.question == Question::memory) {
    if (call.asked.sets) submitter_.flush_early();
    if (call.asked.sets && call.transfer.value != 0)
      standing_.stand_aside("another device may reach the program's memory");
    return arena_.answer_question(call);
  }
  // While step-local memory comes from the plan, the answer would differ from that without Nimble.
  if (!arena_.ask_of_pool(call)) return std::nullopt;
  submitter_.flush();
  arena_.give_back();
  standing_.stand_aside(Arena::kPoolAsked);
  return arena_.answer_pool(call);
}

void StepPlayer::on_end(const Call& call) {
  if (call.ends == Ends::event) return event_ends(call.event);
  submitter_.flush_early();
  // Graphs hold functions and are launched on the stream: neither may be used any more. The stream may be one of the
  // green context's.
  if (call.ends != Ends::stream) run_.unbind();
  if (call.ends == Ends::green_context) streams_.forget();
  if (call.ends != Ends::stream) return;
  stream_ends(streams_.find(call.stream));
  captures_.forget(call.stream);
}

// If a node cannot be made to release it, the step binds anew.
void StepPlayer::event_ends(CUevent event) {
  const HeldOps& held = submitter_.held();
  if (held.has_record(event) || held.has_wait(event)) submitter_.flush_early();
  if (graphs_.let_go(event) != CUDA_SUCCESS) run_.unbind();
  match_.live().forget_event(event);
}

// The launch stream is the first: all graphs go with it.
void StepPlayer::stream_ends(std::uint32_t stream) {
  if (stream == kNone) return;
  if (stream == 0) return run_.unbind(), streams_.forget();
  run_.stop("a stream went away");
  streams_.ends(stream);
}

// The context's objects are gone with it.
void StepPlayer::context_ends(const Call& call) {
  // Another context's end does not concern us.
  const bool ours = !call.context || call.context == streams_.context() || call.context == arena_.context();
  if (!ours) return;
  graphs_.abandon();
  tuning_.abandon();
  audits_.abandon();
  onlookers_.end().abandon();
  streams_.abandon();
  // Ops of other threads that came between the program's call and the driver's answer.
  submitter_.held().clear();
  standing_.end();
}

// Not where the reason is found: that may be in the middle of submitting, whose rest comes first, and may put more work
// on the launch stream for the others to follow.
void StepPlayer::leave() {
  submitter_.flush();
  streams_.release();
  // From now on the streams may end unseen.
  if (!std::exchange(left_, true) && errors_.failed() == CUDA_SUCCESS) arena_.leave();
}

void StepPlayer::after(const Call& call, CUresult result) {
  answered(call, result);
  if (standing_.aside()) leave();
}

void StepPlayer::answered(const Call& call, CUresult result) {
  if (call.asked.question == Question::pool) return arena_.pool_was_asked();  // before replay took over
  const bool good = result == CUDA_SUCCESS;
  switch (call.kind) {
    case CallKind::alloc:
    case CallKind::alloc_async:
      if (good && call.memory.kind == MemoryKind::external)
        standing_.stand_aside("the program uses memory that something else also reaches");
      if (good) {
        memory_.add({call.memory.address, call.memory.size, call.memory.kind});
        if (call.kind == CallKind::alloc_async) arena_.plan().allocated(call.memory.address, call.thread);
      }
      break;
    case CallKind::hidden:
      if (!good || (call.texture && schedule_.textures)) break;
      standing_.stand_aside(std::string("the program uses ") + call.note +
                            ", which may reach memory that no parameter names");
      break;
    case CallKind::context_end:
      // Most ends are known beforehand; that of a primary context only when the driver has answered.
      if (good && !standing_.aside()) context_ends(call);
      break;
    case CallKind::capture_begin:
      if (!good) captures_.forget(call.stream);
      break;
    case CallKind::capture_end:
      // A capture may go on after a call that should have ended it, and end in a call that failed.
      if (!run_.is_captured(call)) captures_.forget(call.stream);
      break;
    default:
      break;
  }
  run_.answered(call, result);
}

// Where the context has failed, the driver says so.
Answer StepPlayer::refuse(const Call& call) const {
  return errors_.failed() == CUDA_SUCCESS ? arena_.refuse(call) : std::nullopt;
}

Answer StepPlayer::before_aside(Call& call) {
  if (call.asked.question == Question::pool) return arena_.answer_pool(call);
  const bool frees = releases_allocation(call);
  if (!arena_.holds(call.memory.address)) return std::nullopt;
  if (!frees && call.asked.question != Question::memory) return refuse(call);
  if (errors_.failed() != CUDA_SUCCESS) return errors_.failed();
  return frees ? arena_.release(call, bound()) : arena_.answer_question(call);
}

void StepPlayer::note(const MemoryEvent& event) {
  if (event.born) {
    memory_.add(event.allocation);
  } else {
    memory_.release(event.allocation.base, event.allocation.size);
  }
}

bool StepPlayer::let_go_of_memory(GoingArena& going) {
  if (captures_.any() || errors_.failed() != CUDA_SUCCESS || standing_.aside()) return false;
  bool any = graphs_.any_built();
  run_.unbind("memory is short");
  if (!standing_.aside() && arena_.give_back(going)) any = true;
  if (standing_.aside()) leave();
  return any;
}

void StepPlayer::context_failed(CUresult error) {
  const bool was_aside = standing_.aside();
  errors_.context_failed(error);
  if (!was_aside) leave();
}

}  // namespace nimble
