#include "replayer/submit/region_graph.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "nimble/internal/address_probe.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"
#include "replayer/match/live_step.h"

namespace nimble {

namespace {

std::string describe(const Schedule& schedule, std::uint32_t index) {
  const ScheduleOp& op = schedule.ops[index];
  std::string text = "op " + std::to_string(index) + " (" + std::string(name(op.kind));
  if (op.kind == CallKind::launch && op.function != kNone)
    text += " " + schedule.functions[op.function].name.substr(0, 100);
  return text + ")";
}

// How far from memory an address may lie that is made from where the memory begins or ends.
constexpr std::uint64_t kBeside = 4096;

// The first word of a launch's parameters that is no pointer into an object, and lies beside one of `own`, which is to
// move; kNone where none does. It may be where that memory ends, as a loop has it that knows its begin and its end. A
// rule knows what is no address at all; code only proves that a word is not followed, and it may be compared.
std::uint32_t beside(const Schedule& schedule, std::uint32_t index, std::span<const std::uint8_t> params,
                     std::span<const RegionMemory> own) {
  const ScheduleOp& op = schedule.ops[index];
  if (op.function == kNone) return kNone;
  const ScheduleFunction& function = schedule.functions[op.function];
  for (const ParamLayout& param : function.params) {
    for (std::uint32_t at = (param.offset + 7) / 8 * 8; at + 8 <= param.offset + param.size; at += 8) {
      if (at + 8 > params.size()) break;
      const bool known = std::any_of(op.pointers.begin(), op.pointers.end(),
                                     [&](const ScheduleParam& pointer) { return pointer.at == at; });
      if (known) continue;
      if (!function.proven && std::binary_search(op.numbers.begin(), op.numbers.end(), at)) continue;
      std::uint64_t word = 0;
      std::memcpy(&word, params.data() + at, sizeof word);
      for (const RegionMemory& memory : own)
        if (word - (memory.base - kBeside) <= memory.size + 2 * kBeside) return at;
    }
  }
  return kNone;
}

}  // namespace

std::vector<std::uint8_t> lasting(std::span<const RegionCall> calls) {
  std::vector<std::uint8_t> result(calls.size());
  std::unordered_set<std::uint64_t> released;
  for (std::size_t i = calls.size(); i-- > 0;) {
    const Call& call = calls[i].call;
    if (call.kind == CallKind::free_async || call.kind == CallKind::free) released.insert(call.address);
    result[i] = call.kind == CallKind::alloc_async && released.count(call.address) == 0;
  }
  return result;
}

RegionGraph::RegionGraph(CallContext& context, const DriverApi& driver)
    : context_(context),
      driver_(driver),
      free_(reinterpret_cast<decltype(free_)>(context.driver_symbol("cuMemFree_v2"))) {}

RegionGraph::~RegionGraph() {
  graph_.reset();
  in_order_.reset();
  if (arena_ && free_) free_(arena_);
}

void RegionGraph::abandon() {
  for (const auto& graph : {graph_.get(), in_order_.get()})
    if (graph) graph->abandon();
  arena_ = 0;
}

std::string RegionGraph::why_not(const Schedule& schedule) {
  for (std::uint32_t i = 0; i < schedule.ops.size(); ++i) {
    const ScheduleOp& op = schedule.ops[i];
    if (op.submit == Submit::direct) return describe(schedule, i) + " cannot be part of a graph";
    // What decides the order would have to be looked at with each launch.
    if (op.payload) return describe(schedule, i) + " copies pointers that other ops follow";
    if (op.kind == CallKind::event_wait && op.record == kNone) return describe(schedule, i) + " waits for earlier work";
  }
  // It may have addresses of the region's own memory in places that nobody knows of, and that memory gets others.
  const auto barrier =
      std::find_if(schedule.ops.begin(), schedule.ops.end(), [](const ScheduleOp& op) { return op.barrier; });
  if (schedule.arena_bytes != 0 && barrier != schedule.ops.end())
    return describe(schedule, static_cast<std::uint32_t>(barrier - schedule.ops.begin())) +
           " may use any memory, and the region allocates and releases some";
  if (schedule.carries) return "its order rests on pointers that are in memory before it begins";
  if (schedule.segments.size() != 1) return "it is no single graph";
  return {};
}

std::string RegionGraph::build(Schedule schedule, std::span<const Call> earlier, std::span<const RegionCall> calls) {
  schedule_ = std::move(schedule);
  if (std::string why = why_not(schedule_); !why.empty()) return why;
  MemoryMap memory;
  ObjectMap objects(schedule_, memory);
  LiveStep live(schedule_, context_, memory, objects,
                Reach(driver_.cuPointerGetAttribute_, driver_.cuDeviceGetCount_, driver_.cuDeviceGetAttribute_));
  for (const Call& call : earlier)
    if (call.kind == CallKind::alloc) memory.add({call.address, call.size, call.memory});
  objects.begin_step();
  live.begin_step();
  std::vector<RegionMemory> own;  // what the region allocates and releases itself, and has not released yet
  const auto is_own = [&](std::uint64_t base) {
    return std::any_of(own.begin(), own.end(), [&](const RegionMemory& one) { return one.base == base; });
  };
  const auto uses = [&](std::uint64_t address) {
    const Allocation* const found = memory.find(address);
    if (found && !found->arena && !is_own(found->base)) memory_.push_back({found->base, found->size});
  };

  const std::vector<std::uint8_t> lasts = lasting(calls);
  // The calls tell what each op of the schedule is here.
  std::uint32_t op = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i].call;
    const bool allocates = call.kind == CallKind::alloc || call.kind == CallKind::alloc_async;
    if (allocates) {
      memory.add({call.address, call.size, call.memory});
      objects.changed();
    }
    if (call.kind == CallKind::alloc || lasts[i]) continue;
    if (!is_op(call.kind)) continue;
    if (op == schedule_.ops.size()) return "its ops are not those that were analyzed";
    Call again = call;
    std::size_t bytes = calls[i].params.size();
    std::array<void*, 5> extra{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::uint8_t*>(calls[i].params.data()),
                               CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    again.kernel_params = nullptr;
    again.extra = bytes ? extra.data() : nullptr;
    if (const char* const reason = live.match(op, again)) return describe(schedule_, op) + ": " + reason;
    if (call.kind == CallKind::alloc_async) {
      objects.place(schedule_.ops[op].object, call.address);
      own.push_back({call.address, call.size});
    }
    if (const std::uint32_t at = beside(schedule_, op, calls[i].params, own); at != kNone)
      return describe(schedule_, op) + ": byte " + std::to_string(at) +
             " of its parameters may be an address beside memory that the region allocates and releases";
    for (std::size_t at = 0; at + 8 <= bytes; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, calls[i].params.data() + at, sizeof word);
      uses(word);
    }
    if (call.kind == CallKind::copy || call.kind == CallKind::set) uses(call.dst.address);
    if (call.kind == CallKind::copy) uses(call.src.address);
    uses_all_ = uses_all_ || schedule_.ops[op].barrier;
    if (call.kind == CallKind::free_async) {
      memory.remove(call.address);
      objects.freed(call.address);
      std::erase_if(own, [&](const RegionMemory& one) { return one.base == call.address; });
    }
    ++op;
  }
  if (op != schedule_.ops.size()) return "its ops are not those that were analyzed";

  // What it allocates and releases itself gets addresses of its own.
  if (schedule_.arena_bytes) {
    const CUresult result = driver_.cuMemAlloc_(&arena_, schedule_.arena_bytes);
    if (result != CUDA_SUCCESS) {
      arena_ = 0;
      return "no memory for its own " + std::to_string(schedule_.arena_bytes) + " bytes (error " +
             std::to_string(result) + ")";
    }
    memory.add({arena_, schedule_.arena_bytes, MemoryKind::stream_ordered, true});
  }
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    if (object.step_local) objects.place_by_plan(i, arena_ + object.plan_offset);
  }
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i)
    if (!schedule_.objects[i].step_local) uses(objects.base(i));
  live.rebase();
  CUcontext current = nullptr;
  driver_.cuCtxGetCurrent_(&current);
  const ScheduleSegment& segment = schedule_.segments.front();
  const ScheduleSegment chain = in_program_order(segment);
  graph_ = std::make_unique<SegmentGraph>(driver_);
  CUresult result = graph_->build(schedule_, segment, live, current, nullptr);
  if (result == CUDA_SUCCESS && !has_program_order(segment)) {
    in_order_ = std::make_unique<SegmentGraph>(driver_);
    result = in_order_->build(schedule_, chain, live, current, nullptr);
  }
  if (result != CUDA_SUCCESS) return "its graph cannot be built (error " + std::to_string(result) + ")";
  return {};
}

std::vector<MemoryRange> RegionGraph::touches() const {
  std::vector<MemoryRange> ranges;
  for (const RegionMemory& one : memory_)
    if (one.size != 0) ranges.push_back({one.base, one.base + one.size, true});
  if (arena_) ranges.push_back({arena_, arena_ + schedule_.arena_bytes, true});
  sort_and_merge(ranges);
  return ranges;
}

bool RegionGraph::touches_variables() const {
  return std::any_of(schedule_.functions.begin(), schedule_.functions.end(),
                     [](const auto& function) { return !function.globals.empty(); });
}

bool RegionGraph::records_any() const {
  return std::any_of(schedule_.ops.begin(), schedule_.ops.end(),
                     [](const ScheduleOp& op) { return op.kind == CallKind::event_record; });
}

}  // namespace nimble
