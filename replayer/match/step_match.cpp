#include "replayer/match/step_match.h"

namespace nimble {

StepMatch::StepMatch(const Schedule& schedule, const StepPaths& paths, CallContext& context, const DriverApi& driver,
                     StepMemory& memory, const MemoryPlan& plan, const StepStreams& streams)
    : schedule_(schedule),
      several_streams_(schedule.streams.size() > 1),
      several_kinds_(paths.kinds() > 1),
      paths_(paths),
      context_(context),
      objects_(memory.objects()),
      plan_(plan),
      streams_(streams),
      live_(schedule, context, memory.map(), memory.objects(),
            Reach(driver.cuPointerGetAttribute_, driver.cuDeviceGetCount_, driver.cuDeviceGetAttribute_)),
      cursor_(schedule, paths) {}

// Streams are matched separately, since two threads may interleave in any way. But the legacy stream and a blocking one
// wait for each other, call by call: an op of one that comes on the other side of an op of the other than recorded is
// ordered the other way round.
bool StepMatch::is_on_another_side(std::uint32_t index) const {
  const auto is_legacy = [&](std::uint32_t s) { return schedule_.streams[s].kind == StreamKind::legacy; };
  const auto waits = [&](std::uint32_t s) { return schedule_.streams[s].kind != StreamKind::non_blocking; };
  const std::uint32_t mine = schedule_.ops[index].stream;
  for (std::uint32_t s = 0; s < schedule_.streams.size(); ++s) {
    if (s == mine || is_legacy(s) == is_legacy(mine) || !waits(s) || !waits(mine)) continue;
    if (!cursor_.comes_between(s, index)) return true;
  }
  return false;
}

inline const char* StepMatch::mismatch(std::uint32_t index, const Call& call) {
  if (several_streams_ && is_on_another_side(index)) return "another order with the legacy stream";
  objects_.attempt();
  if (const char* reason = live_.match(index, call)) {
    objects_.undo();  // the call may be another op, which may need the same memory
    return reason;
  }
  const ScheduleOp& op = schedule_.ops[index];
  const bool serve = op.submit == Submit::plan && op.kind == CallKind::alloc_async && plan_.serves();
  return serve && plan_.is_in_use(op.object) ? "memory of the plan is still in use" : nullptr;
}

// For a launch: whether it has the recorded shape. Other ops have theirs or do not match.
bool StepMatch::has_this_shape(std::uint32_t index, const Call& call) const {
  const ScheduleOp& op = schedule_.ops[index];
  if (op.kind != CallKind::launch || op.submit != Submit::graph) return true;
  return op.grid == call.launch.grid && op.block == call.launch.block && op.shared_bytes == call.launch.shared_bytes;
}

// The expected op has precedence. If its shape differs from the recorded one, as it may, look for a kind that has
// exactly this shape: steps of one kind would match the other's ops, until they do not.
std::uint32_t StepMatch::next_op(std::uint32_t stream, const Call& call, const char*& reason) {
  const std::uint32_t expected = cursor_.next(stream);
  if (!several_kinds_) {
    reason = expected != kNone ? mismatch(expected, call) : "an op after the last one on its stream";
    return reason ? kNone : expected;
  }
  const auto matches = [&](std::uint32_t index) {
    const char* const why = mismatch(index, call);
    if (index == expected) reason = why;
    return !why;
  };
  reason = "an op after the last one on its stream";
  for (const bool exact : {true, false}) {
    if (expected != kNone && has_this_shape(expected, call) == exact && matches(expected)) return expected;
    for (std::uint32_t kind = 0; kind < cursor_.kinds(); ++kind) {
      const std::uint32_t index = cursor_.may_be(kind) ? cursor_.next(kind, stream) : kNone;
      if (index == kNone || index == expected || has_this_shape(index, call) != exact || !matches(index)) continue;
      cursor_.take_for(kind);
      return index;
    }
  }
  return kNone;
}

std::uint32_t StepMatch::op_that_begins_a_stream(const Call& call, bool bound) {
  // Graphs stay on the launch stream that they are bound to.
  for (std::uint32_t s = bound ? 1 : 0; s < streams_.count(); ++s) {
    const bool found = !bound && cursor_.begun() && streams_.has(s);
    if (cursor_.begun(s) || found || !streams_.could_be(s, call.stream) || !may_begin_step(s, call)) continue;
    const char* reason = nullptr;
    if (const std::uint32_t index = next_op(s, call, reason); index != kNone) return index;
  }
  return kNone;
}

bool StepMatch::may_begin_step(std::uint32_t stream, const Call& call) const {
  for (std::uint32_t kind = 0; kind < cursor_.kinds(); ++kind) {
    const std::uint32_t first = cursor_.may_be(kind) ? cursor_.next(kind, stream) : kNone;
    if (first != kNone && could_be(schedule_, context_, first, call)) return true;
  }
  return false;
}

}  // namespace nimble
