#include "analyzer/output/schedule_builder.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace nimble::analyzer {
namespace {

struct Part {
  std::uint32_t op, access;
};

// Marks which accesses of one segment to one object must stay in place.
void mark_apart(const std::vector<Part>& parts, const StepAccesses& accesses, std::vector<std::uint8_t>& fixed) {
  auto at = [&](const Part& part) -> const Access& { return accesses.all[part.access]; };
  bool writes = false, ranges = false, rectangles = false;
  for (const Part& part : parts) {
    writes = writes || at(part).writes;
    ranges = ranges || !at(part).whole;
    rectangles = rectangles || !at(part).rect.is_range();
  }
  if (!writes || !ranges || parts.size() < 2) return;
  if (rectangles) {
    // Columns may interleave; overlapping hulls say nothing.
    for (const Part& part : parts) fixed[part.access] = !at(part).whole;
    return;
  }
  // A range is apart from another exactly if some other ends before it begins, or begins after its end.
  std::uint64_t first_end[2] = {~std::uint64_t{0}, ~std::uint64_t{0}}, last_begin[2] = {0, 0};  // of all; of writers
  for (const Part& part : parts)
    for (int of_writers = 0; of_writers <= (at(part).writes ? 1 : 0); ++of_writers) {
      first_end[of_writers] = std::min(first_end[of_writers], at(part).rect.end());
      last_begin[of_writers] = std::max(last_begin[of_writers], at(part).rect.begin);
    }
  for (const Part& part : parts) {
    int against = at(part).writes ? 0 : 1;
    const ByteRect& rect = at(part).rect;
    if (first_end[against] <= rect.begin || last_begin[against] >= rect.end()) fixed[part.access] = 1;
  }
}

class Builder {
 public:
  explicit Builder(const StepAnalysis& analysis)
      : analysis_(analysis),
        trace_(analysis.input.trace()),
        calls_(analysis.step.calls()),
        fixed_(fixed_accesses(analysis.evidence.accesses, analysis.objects, analysis.cut.segments)) {}

  Schedule build() {
    schedule_.policy = analysis_.plan.chosen;
    schedule_.trace_digest = analysis_.input.file->digest;
    schedule_.trust = name(analysis_.evidence.trust);
    auto pairs = [&](Evidence evidence) { return analysis_.plan.parallelism.pairs[static_cast<int>(evidence)]; };
    schedule_.freedom = {pairs(Evidence::exact), pairs(Evidence::proven), pairs(Evidence::declared),
                         pairs(Evidence::observed), !analysis_.plan.parallelism.exact};
    for (std::size_t i = 0; i < analysis_.objects.objects.size(); ++i) {
      const StepObject& object = analysis_.objects.objects[i];
      schedule_.objects.push_back({object.memory, object.size, object.step_local, analysis_.plan.memory.offset[i]});
    }
    schedule_.arena_bytes = analysis_.plan.memory.arena_bytes;
    schedule_.carries = analysis_.evidence.accesses.carries;
    // If the program had textures, all that is not ordered with everything is known from code or rules.
    schedule_.textures = std::any_of(trace_.calls.begin(), trace_.calls.end(), [](const TraceCall& call) {
      return call.kind == CallKind::hidden && call.result == 0 && call.texture;
    });
    schedule_.streams = analysis_.cut.streams.streams;
    for (std::uint32_t op = 0; op < calls_.size(); ++op) add_op(op);
    for (std::size_t s = 0; s < analysis_.plan.lanes.size(); ++s) add_segment(s);
    for (std::uint32_t op = 0; op < calls_.size(); ++op) {
      if (analysis_.cut.segments.comes_with[op] == kNone) continue;
      ScheduleSegment& segment = schedule_.segments[analysis_.cut.segments.comes_with[op]];
      segment.first = std::min(segment.first, op);
      segment.last = std::max(segment.last, op);
    }
    return std::move(schedule_);
  }

 private:
  void add_op(std::uint32_t op) {
    const TraceCall& call = trace_.calls[calls_[op]];
    ScheduleOp result;
    result.kind = call.kind;
    result.submit = analysis_.cut.segments.submit[op];
    result.stream = analysis_.cut.streams.of_op[op];
    result.segment = analysis_.cut.segments.segment[op];
    if (result.submit == Submit::order) {
      result.segment = analysis_.cut.segments.comes_with[op];
      result.record = analysis_.cut.segments.record[op];
    }
    const auto pointers = analysis_.input.table->pointers(calls_[op]);
    switch (call.kind) {
      case CallKind::launch:
        fill_launch(op, call, pointers, result);
        break;
      case CallKind::copy:
      case CallKind::set:
        fill_copy_or_set(op, call, pointers, result);
        break;
      case CallKind::alloc_async:
      case CallKind::free_async:
        if (!pointers.empty()) result.object = analysis_.objects.find(pointers.front().object);
        result.size = call.size;
        break;
      default:
        break;
    }
    schedule_.ops.push_back(std::move(result));
  }

  void fill_launch(std::uint32_t op, const TraceCall& call, std::span<const PointerWord> pointers, ScheduleOp& result) {
    const StepAccesses& accesses = analysis_.evidence.accesses;
    const OpAccesses& known = accesses.ops[op];
    result.function = function(call.function, known.from_code);
    // Nothing was seen of other shapes.
    result.fixed_launch = known.evidence == Evidence::observed || accesses.pinned[op].shape;
    if (known.from_code) add_globals(call.function, result.function, pointers);
    result.grid = call.grid;
    result.block = call.block;
    result.shared_bytes = call.shared_bytes;
    result.barrier = known.role == OpRole::barrier;
    if (result.barrier) return;
    const auto& skipped = accesses.no_pointers[op];
    for (const PointerWord& pointer : pointers)
      if (pointer.at < kAtGlobals && !std::binary_search(skipped.begin(), skipped.end(), pointer.at))
        result.pointers.push_back({pointer.at, {analysis_.objects.find(pointer.object), pointer.offset, false}});
    result.numbers = skipped;
    for (const auto& [first, count] : accesses.pinned[op].params.all()) {
      const auto begin = call.params.begin() + first;
      result.equal.push_back({first, {begin, begin + count}});
    }
    // Restoring a copy cannot undo what it tells others: for an audit it may write anything.
    if (known.communicates == Communicates::no) add_writes(op, result);
  }

  void fill_copy_or_set(std::uint32_t op, const TraceCall& call, std::span<const PointerWord> pointers,
                        ScheduleOp& result) const {
    const StepAccesses& accesses = analysis_.evidence.accesses;
    for (const PointerWord& pointer : pointers) {
      if (pointer.at >= kAtWords) break;
      SchedulePointer& side = pointer.at == kAtDst ? result.dst : result.src;
      side.object = analysis_.objects.find(pointer.object);
      side.offset = pointer.offset;
    }
    for (std::uint32_t i = 0; i < accesses.ops[op].count; ++i) {
      std::uint32_t access = accesses.ops[op].first + i;
      SchedulePointer& side = accesses.all[access].at == kAtDst ? result.dst : result.src;
      side.fixed = fixed_[access] != 0;
    }
    if (!accesses.compared.empty() && accesses.compared[op] != 0) add_payload(call, op, result);
    result.dst_pitch = call.dst.pitch;
    result.src_pitch = call.src.pitch;
    result.width = call.width;
    result.height = call.height;
    result.element = call.element;
  }

  // Accesses of other ops rely on what the copy or set puts there.
  void add_payload(const TraceCall& call, std::uint32_t op, ScheduleOp& result) const {
    result.dst.fixed = true;
    if (result.src.object != kNone) result.src.fixed = true;
    if (!call.words) return;
    result.src.fixed = false;  // in the host's memory only the content counts
    result.payload.emplace();
    for (const PointerWord& pointer : analysis_.input.table->pointers(calls_[op]))
      if (pointer.at >= kAtWords)
        result.payload->push_back({(*call.words)[pointer.at - kAtWords].offset,
                                   {analysis_.objects.find(pointer.object), pointer.offset, false}});
  }

  // What it may write, and what it reads as far as is known.
  void add_writes(std::uint32_t op, ScheduleOp& result) const {
    std::vector<std::uint32_t>& writes = result.writes.emplace();
    std::vector<std::uint32_t> reads;
    for (const Access& access : analysis_.evidence.accesses.of(op))
      (access.writes ? writes : reads).push_back(access.object);
    // Without a proof, a pointer that nothing was said about counts as read.
    bool believed = analysis_.evidence.accesses.ops[op].evidence > Evidence::proven;
    for (const ScheduleParam& param : result.pointers) reads.push_back(param.pointer.object);
    auto tidy = [](std::vector<std::uint32_t>& objects) {
      std::sort(objects.begin(), objects.end());
      objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
    };
    tidy(writes);
    tidy(reads);
    if (believed)
      std::set_difference(reads.begin(), reads.end(), writes.begin(), writes.end(),
                          std::back_inserter(result.believed_reads));
  }

  std::uint32_t function(std::uint32_t id, bool from_code) {
    auto [entry, is_new] = functions_.emplace(id, static_cast<std::uint32_t>(schedule_.functions.size()));
    if (is_new) {
      const TraceFunction& known = trace_.functions[id];
      ScheduleFunction& added = schedule_.functions.emplace_back();
      added.name = known.name;
      added.params = known.params.value_or(std::vector<ParamLayout>{});
      added.self_contained = known.self_contained;
      // Others may rely on what a kernel was never seen to write: it has to be the same code.
      if (analysis_.evidence.trust == Evidence::observed && !trace_.probes.empty()) added.code = known.code;
    }
    if (from_code) {
      schedule_.functions[entry->second].proven = trace_.functions[id].proof->accesses;
      schedule_.functions[entry->second].stored = trace_.functions[id].proof->stored;
      schedule_.functions[entry->second].doubts = digest_of_doubts(trace_.functions[id].proof->extents);
    }
    return entry->second;
  }

  void add_globals(std::uint32_t id, std::uint32_t function, std::span<const PointerWord> pointers) {
    std::vector<ScheduleGlobal>& globals = schedule_.functions[function].globals;
    if (!globals.empty()) return;
    for (const PointerWord& pointer : pointers) {
      if (pointer.at < kAtGlobals) continue;
      const ProvenGlobal& global = trace_.functions[id].proof->globals[pointer.at - kAtGlobals];
      globals.push_back({global.name, analysis_.objects.find(pointer.object), global.reads, global.writes});
    }
  }

  void add_segment(std::size_t s) {
    const std::vector<std::uint32_t>& ops = analysis_.cut.segments.segments[s].ops;
    const SegmentPlan& plan = analysis_.plan.lanes[s];
    ScheduleSegment segment;
    segment.first = ops.front();
    segment.last = ops.back();
    segment.lanes = plan.assignment.lanes;
    segment.synchronizations = plan.synchronizations;
    for (const auto& [from, to] : plan.enforced.edges()) segment.edges.push_back({ops[from], ops[to]});
    for (std::uint32_t node : plan.order) segment.order.push_back(ops[node]);
    for (std::size_t node = 0; node < ops.size(); ++node) {
      schedule_.ops[ops[node]].lane = plan.assignment.lane[node];
      if (!plan.assignment.priority.empty()) schedule_.ops[ops[node]].priority = plan.assignment.priority[node];
    }
    schedule_.segments.push_back(std::move(segment));
  }

  const StepAnalysis& analysis_;
  const Trace& trace_;
  std::span<const std::uint32_t> calls_;
  std::vector<std::uint8_t> fixed_;
  std::unordered_map<std::uint32_t, std::uint32_t> functions_;
  Schedule schedule_;
};

}  // namespace

std::vector<std::uint8_t> fixed_accesses(const StepAccesses& accesses, const StepObjects& objects,
                                         const Segmentation& segments) {
  std::vector<std::uint8_t> fixed(accesses.all.size(), 0);
  std::vector<std::uint32_t> alias = aliases(objects);
  std::unordered_map<std::uint32_t, std::vector<Part>> parts;  // by object
  for (const Segment& segment : segments.segments) {
    parts.clear();
    for (std::uint32_t op : segment.ops)
      for (std::uint32_t i = 0; i < accesses.ops[op].count; ++i) {
        std::uint32_t access = accesses.ops[op].first + i;
        if (!accesses.all[access].rect.empty()) parts[alias[accesses.all[access].object]].push_back({op, access});
      }
    for (const auto& [object, touched] : parts) mark_apart(touched, accesses, fixed);
  }
  return fixed;
}

KindSchedule build_kind_schedule(const StepAnalysis& analysis) {
  KindSchedule result{Builder(analysis).build(), {}};
  for (const StepObject& object : analysis.objects.objects) result.ids.push_back(object.id);
  return result;
}

Schedule build_schedule(const Analysis& analysis) {
  KindSchedule first = build_kind_schedule(analysis);
  if (analysis.others.empty()) return std::move(first.schedule);
  KindMerger merger;
  merger.add(std::move(first));
  // They are known to be compatible.
  for (const StepAnalysis& other : analysis.others) merger.add(build_kind_schedule(other));
  return merger.schedule();
}

}  // namespace nimble::analyzer
