// What a StepPlayer knows and does about memory: step-local memory served from the arena, what of it the program still
// has, and where it gives it back.
#include <algorithm>
#include <utility>

#include "replayer/driver/current_context.h"
#include "replayer/step_player.h"

namespace nimble {

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
    unwatch(event.allocation.base, event.allocation.size);
    objects_.freed(event.allocation.base, event.allocation.size);
  }
}

std::optional<CUresult> StepPlayer::before_aside(Call& call) {
  const bool frees = call.kind == CallKind::free || call.kind == CallKind::free_async;
  if (call.question == Question::pool) return answer_pool(call);
  if (!in_arena(call.address) || !(frees || call.question == Question::memory)) return std::nullopt;
  if (failed_ != CUDA_SUCCESS) return failed_;
  return frees ? free_in_arena(call) : answer_question(call);
}

// The arena is one allocation to the driver, but many to the program.
std::optional<CUresult> StepPlayer::answer_question(Call& call) {
  if (!in_arena(call.address)) return std::nullopt;
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    const std::uint64_t base = arena_ + object.plan_offset;
    if (!objects_.taken(i) || call.address - base >= object.size) continue;
    call.address = base;
    call.size = object.size;
    answers_.answer(call, base, driver_, arena_context_);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

bool StepPlayer::let_go_of_memory(GoingArena& arena) {
  if (!captures_.empty() || failed_ != CUDA_SUCCESS || !aside_.empty()) return false;
  bool any = false;
  for (std::size_t i = 0; i < graphs_.size(); ++i) any = any || graphs_[i].built() || in_order_[i].built();
  unbind("memory is short");
  const GoingArena going{nullptr, arena_context_, arena_pool_, schedule_.arena_bytes};
  if (aside_.empty() && give_arena_back()) {
    any = true;
    const CurrentContext current(driver_, going.context);
    CUevent gone = nullptr;
    if (driver_.cuEventCreate_(&gone, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
      arena = going;
      if (driver_.cuEventRecord_(gone, streams_.launch().handle) == CUDA_SUCCESS) {
        arena.gone = gone;
      } else {
        driver_.cuEventDestroy_(gone);
      }
    }
  }
  if (!aside_.empty()) leave();
  return any;
}

void StepPlayer::retire() {
  drop_graphs();
  state_ = State::searching;
  if (onlookers_) onlookers_->leave(work_);
}

// How much the program's pool has: not what it would have without us, as long as step-local memory comes from the plan.
std::optional<CUresult> StepPlayer::ask_of_pool(Call& call) {
  if (arena_ && !is_of_arena(call)) return std::nullopt;
  pool_asked_ = true;
  if (!arena_) return std::nullopt;
  flush();
  give_arena_back();
  stand_aside(kPoolAsked);
  return answer_pool(call);
}

// The pools of other devices have none of ours.
bool StepPlayer::is_of_arena(const Call& call) const {
  return !arena_pool_ || !call.address || call.address == reinterpret_cast<std::uint64_t>(arena_pool_);
}

std::optional<CUresult> StepPlayer::answer_pool(Call& call) const {
  if (!arena_ || !is_of_arena(call)) return std::nullopt;
  call.width = schedule_.arena_bytes;
  call.size = 0;
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i)
    if (objects_.taken(i)) call.size += schedule_.objects[i].size;
  return CUDA_SUCCESS;
}

bool StepPlayer::give_arena_back() {
  if (!arena_ || objects_.all_taken() != 0 || arena_use_unknown_ || handover_failed_) return false;
  if (!captures_.empty() || !streams_.has(0) || arena_context_ != cu_context_ || streams_.launch_captures())
    return false;
  const CurrentContext current(driver_, arena_context_);
  // What another stream did before it was the launch stream, and what the program's streams did with what they
  // released.
  if (handover_ && driver_.cuStreamWaitEvent_(streams_.launch().handle, handover_, 0) != CUDA_SUCCESS) return false;
  if (streams_.come_behind_due() != CUDA_SUCCESS || streams_.gather() != CUDA_SUCCESS) return false;
  if (driver_.cuMemFreeAsync_(arena_, streams_.launch().handle) != CUDA_SUCCESS) return false;
  memory_.remove(arena_);
  objects_.changed();
  arena_ = 0;
  return true;
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

std::optional<CUresult> StepPlayer::on_free(Call& call) {
  if (call.host == HostEffect::observe) flush_early();
  if (in_arena(call.address)) return free_in_arena(call);
  memory_.remove(call.address, call.size);
  unwatch(call.address, call.size);
  objects_.freed(call.address, call.size);
  return std::nullopt;
}

// The program gives step-local memory back outside the place where the schedule expects it.
std::optional<CUresult> StepPlayer::free_in_arena(const Call& call) {
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    if (!object.step_local || arena_ + object.plan_offset != call.address || !objects_.taken(i)) continue;
    if (!arena_context_) {  // its end may have taken the stream, or what was current
      int priority = 0;
      unsigned type = 0;
      const CUresult refusal = call.has_stream
                                   ? driver_.cuStreamGetPriority_(call.stream.handle, &priority)
                                   : driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, arena_);
      if (refusal != CUDA_SUCCESS) return refusal;
    }
    objects_.take(i, false);
    answers_.gone(call.address);
    // cuMemFree takes it that all accesses are over. Once replay has stood aside nobody will use the memory again.
    const StreamRef launch = streams_.launch();
    const bool bound = state_ == State::bound;
    if (call.kind == CallKind::free || (bound && call.stream == launch)) return CUDA_SUCCESS;
    if (!aside_.empty()) {
      arena_use_unknown_ = true;
      return CUDA_SUCCESS;
    }
    const CurrentContext current(driver_, arena_context_);
    // The next use of the memory comes behind our stream: that must come after what the program's stream still does
    // with it. Which stream it will be is not known while none is bound, and one that captures cannot wait.
    const bool later = !bound || !captures_.empty();
    CUevent event = nullptr;
    CUresult result = driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(event, call.stream.handle);
    if (result == CUDA_SUCCESS && later) {
      streams_.later(event);
      return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(launch.handle, event, 0);
    if (event) driver_.cuEventDestroy_(event);
    if (bound) individually(0);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : could_not_wait(result);
  }
  return CUDA_ERROR_INVALID_VALUE;  // no allocation starts there: what the driver says to that
}

}  // namespace nimble
