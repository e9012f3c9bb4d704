#include "replayer/step/step_binding.h"

#include "replayer/driver/current_context.h"

namespace nimble {

// The driver checks the memory of copies and sets when their nodes are made. Memory that the step used may be gone by
// now; then bind after the next whole step. Kernels' parameters are only bytes, and checked before use.
bool StepBinding::can_bind(std::uint32_t kind) const {
  for (const std::uint32_t index : paths_.ops(kind)) {
    const ScheduleOp& op = schedule_.ops[index];
    if (op.submit != Submit::graph) continue;
    if (op.kind == CallKind::event_record && !live_.live(index).event) return false;
    for (const SchedulePointer* pointer : {&op.dst, &op.src}) {
      const std::uint32_t object = pointer->object;
      if (object != kNone && !schedule_.objects[object].step_local && !memory_.objects().base(object)) return false;
    }
  }
  return true;
}

void StepBinding::build(std::uint32_t kind) {
  if (bound_) {
    graphs_.build(kind);
    return;
  }
  const CurrentContext current(driver_, streams_.context());
  if (!arena_.provide()) return;
  tuning_.use_context(streams_.context());
  live_.rebase();
  graphs_.drop();
  bound_ = graphs_.build(kind);
}

void StepBinding::unbind() {
  if (bound_) arena_.leave_stream();
  bound_ = false;
  due_ = kNone;
  live_.forget_functions();
  graphs_.drop();
}

}  // namespace nimble
