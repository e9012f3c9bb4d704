#include "replayer/schedule/schedule_consistency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "nimble/internal/step_paths.h"
#include "nimble/internal/use_order.h"
#include "replayer/schedule/schedule_reader.h"

namespace nimble {

namespace {

// The objects that the op names.
template <typename Function>
void each_object(const ScheduleOp& op, Function function) {
  for (const ScheduleParam& param : op.pointers) function(param.pointer.object);
  if (op.dst.object != kNone) function(op.dst.object);
  if (op.src.object != kNone) function(op.src.object);
}

// Objects that share bytes of the arena: the program must free one before it allocates the other, also by the order of
// its streams, and by the graphs' order all uses of one must precede all uses of the other.
void check_sharing(const Schedule& schedule, const std::string& source) {
  const auto fail = [&](std::uint32_t object, const char* problem) {
    throw ScheduleError(fmt::format("{}: objects[{}]: {}", source, object, problem));
  };
  std::vector<std::uint32_t> segment, stream, record;
  for (const ScheduleOp& op : schedule.ops) {
    segment.push_back(op.submit == Submit::graph ? op.segment : kNone);
    stream.push_back(op.stream);
    record.push_back(op.record);
  }
  std::vector<std::vector<SegmentPaths::Edge>> edges;
  for (const ScheduleSegment& each : schedule.segments) edges.push_back(each.edges);
  const SegmentPaths graphs(segment, std::move(edges));
  const StreamPaths streams(stream, record, static_cast<std::uint32_t>(schedule.streams.size()));
  BothOrders order(graphs, streams, schedule.objects.size());
  for (std::uint32_t op = 0; op < schedule.ops.size(); ++op) {
    if (schedule.ops[op].submit == Submit::plan) order.bounds(schedule.ops[op].object, op);
    each_object(schedule.ops[op], [&](std::uint32_t object) { order.use(object, op); });
  }
  std::map<std::uint64_t, std::uint64_t> live;  // begin and end
  LastUsers last;
  for (const ScheduleOp& op : schedule.ops) {
    if (op.submit != Submit::plan) continue;
    const ScheduleObject& object = schedule.objects[op.object];
    const std::uint64_t begin = object.plan_offset, end = begin + object.size;
    if (object.size == 0) continue;
    if (op.kind == CallKind::free_async) {
      live.erase(begin);
      continue;
    }
    const auto after = live.lower_bound(begin);
    if ((after != live.end() && after->first < end) || (after != live.begin() && std::prev(after)->second > begin))
      fail(op.object, "overlaps another in the memory plan that is live at the same time");
    if (!last.free_for(order, op.object, begin, end))
      fail(op.object, "overlaps another in the memory plan whose uses are not ordered before its own");
    live[begin] = end;
    last.take(order, op.object, begin, end);
  }
}

[[noreturn]] void fail_object(const std::string& source, std::uint32_t object, const std::string& problem) {
  throw ScheduleError(fmt::format("{}: objects[{}]: {}", source, object, problem));
}

enum class Life : std::uint8_t { unborn, live, freed };

// Per object: its state at the end of the step. Checks that each use lies in its object's life.
std::vector<Life> lives(const Schedule& schedule, const std::string& source) {
  std::vector<Life> life(schedule.objects.size(), Life::unborn);
  const auto use = [&](const SchedulePointer& p) {
    if (p.object != kNone && schedule.objects[p.object].step_local && life[p.object] != Life::live) {
      fail_object(source, p.object, "is used before it is allocated or after it is freed");
    }
  };
  for (const ScheduleOp& op : schedule.ops) {
    if (op.submit == Submit::plan) {
      const bool alloc = op.kind == CallKind::alloc_async;
      if (life[op.object] != (alloc ? Life::unborn : Life::live))
        fail_object(source, op.object, "is not allocated once and then freed once");
      life[op.object] = alloc ? Life::live : Life::freed;
    }
    for (const ScheduleParam& param : op.pointers) use(param.pointer);
    use(op.dst);
    use(op.src);
    if (op.payload)
      for (const SchedulePayload& word : *op.payload) use(word.pointer);
  }
  return life;
}

// Checks the plan of one kind of step. Marks its objects.
void check_plan_of_kind(const Schedule& schedule, const std::string& source, std::vector<bool>& placed) {
  const std::vector<Life> life = lives(schedule, source);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // begin and end
  for (std::uint32_t i = 0; i < schedule.objects.size(); ++i) {
    const ScheduleObject& object = schedule.objects[i];
    if (!object.step_local) continue;
    if (life[i] == Life::unborn) continue;
    if (life[i] != Life::freed) fail_object(source, i, "is not allocated once and then freed once");
    placed[i] = true;
    if (object.plan_offset % kPlanAlignment)
      fail_object(source, i, fmt::format("has a plan_offset that is not a multiple of {}", kPlanAlignment));
    if (object.plan_offset > schedule.arena_bytes || object.size > schedule.arena_bytes - object.plan_offset) {
      fail_object(source, i, "does not fit into arena_bytes");
    }
    ranges.emplace_back(object.plan_offset, object.plan_offset + object.size);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i - 1].second > ranges[i].first) return check_sharing(schedule, source);
  }
}

}  // namespace

void check_kinds(const Schedule& schedule, const std::string& source) {
  const auto fail = [&](const char* list, std::size_t index, const std::string& problem) {
    throw ScheduleError(fmt::format("{}: {}[{}]: {}", source, list, index, problem));
  };
  if (schedule.ends.size() > 1 && schedule.carries)
    throw ScheduleError(source + ": carries: must be false if there are several kinds of step");
  const StepPaths paths(schedule);
  std::vector<bool> reached(schedule.ops.size(), false);
  for (std::uint32_t kind = 0; kind < paths.kinds(); ++kind) {
    std::vector<bool> mine(schedule.ops.size(), false);
    for (const std::uint32_t op : paths.ops(kind)) {
      reached[op] = mine[op] = true;
      const std::uint32_t record = schedule.ops[op].record;
      if (record != kNone && !mine[record]) fail("ops", op, "waits for a record that is not of its kind of step");
    }
  }
  for (std::size_t op = 0; op < reached.size(); ++op)
    if (!reached[op]) fail("ops", op, "is not in any kind of step");
  // After these ops something other than the next one may come.
  std::vector<std::uint32_t> parts = schedule.ends;
  for (const ScheduleBranch& branch : schedule.branches) {
    if (branch.after != kNone) parts.push_back(branch.after);
    if (branch.first != 0) parts.push_back(branch.first - 1);
  }
  std::sort(parts.begin(), parts.end());
  for (std::size_t s = 0; s < schedule.segments.size(); ++s) {
    const auto part = std::lower_bound(parts.begin(), parts.end(), schedule.segments[s].first);
    if (part != parts.end() && *part < schedule.segments[s].last)
      fail("segments", s, fmt::format("extends beyond op {}, after which steps diverge or end", *part));
  }
}

void check_plan(const Schedule& schedule, const std::string& source) {
  const StepPaths paths(schedule);
  std::vector<bool> placed(schedule.objects.size(), false);
  if (paths.kinds() == 1) {
    check_plan_of_kind(schedule, source, placed);
  } else {
    for (std::uint32_t kind = 0; kind < paths.kinds(); ++kind)
      check_plan_of_kind(kind_alone(schedule, paths, kind), source, placed);
  }
  for (std::size_t i = 0; i < placed.size(); ++i)
    if (schedule.objects[i].step_local && !placed[i])
      throw ScheduleError(fmt::format("{}: objects[{}]: is not allocated once and then freed once", source, i));
}

}  // namespace nimble
