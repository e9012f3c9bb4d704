#include "replayer/bind/arena.h"

#include <string>

#include "replayer/driver/current_context.h"
#include "replayer/driver/result_name.h"

namespace nimble {

Arena::Arena(const Schedule& schedule, const DriverApi& driver, StepMemory& memory, StepStreams& streams,
             const Captures& captures, StepErrors& errors, StandAside& standing)
    : schedule_(schedule),
      driver_(driver),
      memory_(memory),
      streams_(streams),
      captures_(captures),
      errors_(errors),
      standing_(standing),
      plan_(schedule, memory.objects()),
      handover_(driver, streams, captures),
      left_(driver) {}

bool Arena::provide() {
  if (!handover_.follow()) {
    standing_.stand_aside("the step moved to a stream that cannot wait for the previous one");
    return false;
  }
  if (base_ && context_ != streams_.context()) {
    standing_.stand_aside("the step moved to another context");
    return false;
  }
  if (schedule_.arena_bytes && !base_) {
    if (pool_asked_) {
      standing_.stand_aside(kPoolAsked);
      return false;
    }
    // From the pool of the program's own allocations: so the driver's answers about them stay the same.
    CUdeviceptr base = 0;
    const CUresult result = driver_.cuMemAllocAsync_(&base, schedule_.arena_bytes, streams_.launch().handle);
    if (result != CUDA_SUCCESS) {
      standing_.stand_aside("no memory for the step's " + std::to_string(schedule_.arena_bytes) + " bytes (" +
                            result_name(result) + ")");
      return false;
    }
    base_ = base;
    context_ = streams_.context();
    use_unknown_ = false;
    pool_ = nullptr;
    driver_.cuPointerGetAttribute_(&pool_, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, base_);
    memory_.map().add({base_, schedule_.arena_bytes, MemoryKind::stream_ordered, true});
  }
  standing_.keep_order(streams_.individually(0));  // after whatever this stream waits for, and all streams with it
  plan_.place(base_);
  return true;
}

// Makes the launch stream wait for all work that may use the arena: that of the previous launch stream, and of the
// streams on which the program released memory. With the arena's context current. Whether it does.
bool Arena::gather_uses() {
  if (!base_ || use_unknown_ || handover_.failed() || captures_.any() || !streams_.has(0) ||
      context_ != streams_.context() || streams_.launch_captures())
    return false;
  const CurrentContext current(driver_, context_);
  return handover_.follow() && streams_.follow_due() == CUDA_SUCCESS && streams_.gather() == CUDA_SUCCESS;
}

void Arena::gone() {
  memory_.map().remove(base_);
  memory_.objects().changed();
  base_ = 0;
}

bool Arena::give_back() {
  if (is_in_use() || !gather_uses()) return false;
  const CurrentContext current(driver_, context_);
  if (driver_.cuMemFreeAsync_(base_, streams_.launch().handle) != CUDA_SUCCESS) return false;
  gone();
  return true;
}

void Arena::leave() {
  if (give_back() || !base_) return;
  use_unknown_ = !gather_uses() || !left_.begin(context_, streams_.launch().handle);
}

// cuMemFree asserts that all accesses are over.
void Arena::release_left(const Call& call) {
  if (!use_unknown_ && call.kind != CallKind::free)
    use_unknown_ = !left_.has_begun() || !left_.follow(call.stream.handle);
  if (use_unknown_ || is_in_use() || !left_.has_begun()) return;
  if (left_.end(base_)) {
    gone();
  } else {
    use_unknown_ = true;
  }
}

bool Arena::give_back(GoingArena& going) {
  const GoingArena mine{nullptr, context_, pool_, schedule_.arena_bytes};
  if (!give_back()) return false;
  const CurrentContext current(driver_, mine.context);
  CUevent gone = nullptr;
  if (driver_.cuEventCreate_(&gone, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return true;
  going = mine;
  if (driver_.cuEventRecord_(gone, streams_.launch().handle) == CUDA_SUCCESS) {
    going.gone = gone;
  } else {
    driver_.cuEventDestroy_(gone);
  }
  return true;
}

CUresult Arena::release(const Call& call, bool bound) {
  const std::uint32_t object = plan_.begins_at(call.memory.address - base_);
  if (object == kNone) return CUDA_ERROR_INVALID_VALUE;  // no allocation starts there: the driver's answer
  if (!context_) {                                       // its end may have taken the stream, or the current context
    int priority = 0;
    unsigned type = 0;
    const CUresult refusal = call.has_stream
                                 ? driver_.cuStreamGetPriority_(call.stream.handle, &priority)
                                 : driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base_);
    if (refusal != CUDA_SUCCESS) return refusal;
  }
  put_back(object, call);
  if (standing_.aside()) {  // the memory is not used again
    release_left(call);
    return CUDA_SUCCESS;
  }
  // cuMemFree asserts that all accesses are over.
  const StreamRef launch = streams_.launch();
  if (call.kind == CallKind::free || (bound && call.stream == launch)) return CUDA_SUCCESS;
  const CurrentContext current(driver_, context_);
  // The next use of the memory follows our stream's work, which must come after the program's remaining uses on its
  // stream. While no stream is bound we do not know which it will be, and a capturing stream cannot wait.
  const bool later = !bound || captures_.any();
  CUevent event = nullptr;
  CUresult result = driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(event, call.stream.handle);
  if (result == CUDA_SUCCESS && later) {
    streams_.later(event);
    return CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent_(launch.handle, event, 0);
  if (event) driver_.cuEventDestroy_(event);
  if (bound) standing_.keep_order(streams_.individually(0));
  return result == CUDA_SUCCESS ? CUDA_SUCCESS : could_not_wait(result);
}

// The driver does not let our stream wait for the one on which the program has released memory. Not an error of the
// program: the memory is free. It must not be used again, and standing aside ensures that.
CUresult Arena::could_not_wait(CUresult error) {
  standing_.stand_aside("memory was freed on a stream that cannot be waited for (" + result_name(error) + ")");
  use_unknown_ = true;
  errors_.note(error);
  return errors_.failed();
}

Answer Arena::answer_question(Call& call) {
  if (!holds(call.memory.address)) return std::nullopt;
  const std::uint32_t object = plan_.holds(call.memory.address - base_);
  if (object == kNone) return CUDA_ERROR_NOT_FOUND;
  const std::uint64_t base = base_ + schedule_.objects[object].plan_offset;
  call.memory.address = base;
  call.memory.size = schedule_.objects[object].size;
  answers_.answer(call, base, driver_, context_);
  return CUDA_SUCCESS;
}

Answer Arena::refuse(const Call& call) const {
  const bool asks = call.asked.question == Question::handle;
  if (!context_ || !(asks || ends_registration(call)) || !holds(call.memory.address) ||
      plan_.holds(call.memory.address - base_) != kNone)
    return std::nullopt;
  return asks ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

// Pools of other devices have none of our memory.
bool Arena::is_of(const Call& call) const {
  return !pool_ || !call.memory.address || call.memory.address == reinterpret_cast<std::uint64_t>(pool_);
}

Answer Arena::answer_pool(Call& call) const {
  if (!base_ || !is_of(call)) return std::nullopt;
  call.transfer.width = schedule_.arena_bytes;
  call.memory.size = plan_.bytes_in_use();
  return CUDA_SUCCESS;
}

bool Arena::ask_of_pool(const Call& call) {
  if (base_ && !is_of(call)) return false;
  pool_asked_ = true;
  return base_ != 0;
}

void Arena::context_gone(const Call& call) {
  if (!base_ || (call.context && call.context != context_)) return;
  context_ = nullptr;  // no further call is made with it current
  use_unknown_ = true;
  left_.context_gone();
  // The pool outlives contexts, unless the device itself was reset: check the arena. If it is gone the driver may reuse
  // its addresses.
  unsigned type = 0;
  if (driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base_) == CUDA_ERROR_INVALID_VALUE)
    base_ = 0;
}

}  // namespace nimble
