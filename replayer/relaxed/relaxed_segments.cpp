#include "replayer/relaxed/relaxed_segments.h"

#include <algorithm>

#include "replayer/step_order/program_order.h"

namespace nimble {

namespace {

std::uint32_t find_last_record(const Schedule& schedule, const ScheduleSegment& segment) {
  const auto last = std::max_element(segment.order.begin(), segment.order.end());
  if (last == segment.order.end() || schedule.ops[*last].kind != CallKind::event_record) return kNone;
  std::vector<std::uint32_t> before{*last};
  std::vector<bool> seen(schedule.ops.size(), false);
  seen[*last] = true;
  for (std::size_t i = 0; i < before.size(); ++i)
    for (const auto& [from, to] : segment.edges)
      if (to == before[i] && !seen[from]) {
        seen[from] = true;
        before.push_back(from);
      }
  return before.size() == segment.order.size() ? *last : kNone;
}

}  // namespace

RelaxedSegments::RelaxedSegments(const Schedule& schedule) : uses_(schedule.objects.size(), 0) {
  for (const ScheduleSegment& segment : schedule.segments) {
    Segment& mine = segments_.emplace_back();
    mine.relaxed = !has_program_order(segment);
    mine.last_record = find_last_record(schedule, segment);
    any_ = any_ || mine.relaxed;
    for (const std::uint32_t index : segment.order) {
      const ScheduleOp& op = schedule.ops[index];
      if (op.kind == CallKind::event_record) mine.records = true;
      if (mine.relaxed) use(schedule, op);
    }
  }
  // What pointers in memory lead to is among the step's objects, but of no op's that is known.
  if (any_ && schedule.rests_on_pointers()) uses_.assign(uses_.size(), kRead | kWritten);
}

void RelaxedSegments::use(const Schedule& schedule, const ScheduleOp& op) {
  use(op.dst.object, kRead | kWritten);
  use(op.src.object, kRead);
  for (const ScheduleParam& param : op.pointers) {
    const bool reads_only =
        op.writes && std::find(op.writes->begin(), op.writes->end(), param.pointer.object) == op.writes->end();
    use(param.pointer.object, reads_only ? kRead : kRead | kWritten);
  }
  if (op.function == kNone) return;
  for (const ScheduleGlobal& global : schedule.functions[op.function].globals) {
    use(global.object, global.writes ? kRead | kWritten : kRead);
    use_variables_ = true;
  }
}

}  // namespace nimble
