#include "replayer/match/op_match.h"

#include <algorithm>
#include <cstring>

#include "nimble/internal/launch_params.h"

namespace nimble {

namespace {

// Copies a parameter's value; whether it equals the bound one. Most have the size of a number or a pointer, for which
// calling memcpy would dominate.
bool take(const void* value, std::uint32_t size, std::uint8_t* live, const std::uint8_t* bound) {
  const auto as = [&]<class Number>(Number number) {
    Number known;
    std::memcpy(&number, value, sizeof number);
    std::memcpy(&known, bound, sizeof known);
    std::memcpy(live, &number, sizeof number);
    return number == known;
  };
  if (size == 8) return as(std::uint64_t{});
  if (size == 4) return as(std::uint32_t{});
  std::memcpy(live, value, size);
  return std::memcmp(live, bound, size) == 0;
}

// operator== would call memcmp.
bool same(const std::array<std::uint32_t, 3>& a, const std::array<std::uint32_t, 3>& b) {
  return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])) == 0;
}

// Whether a live kernel's code proves what the schedule relies on.
bool proves_the_same(const ScheduleFunction& function, const FunctionInfo& info) {
  if (!info.proof || info.proof->accesses != *function.proven || info.proof->stored != function.stored) return false;
  if (digest_of_doubts(info.proof->extents) != function.doubts) return false;
  const auto same = [](const ScheduleGlobal& a, const ProvenGlobal& b) {
    return a.name == b.name && a.reads == b.reads && a.writes == b.writes;
  };
  return std::equal(function.globals.begin(), function.globals.end(), info.proof->globals.begin(),
                    info.proof->globals.end(), same);
}

}  // namespace

bool could_be(const Schedule& schedule, CallContext& context, std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule.ops[index];
  if (call.kind != op.kind) return false;
  // A launch that no graph holds has no function in the schedule: it may be any.
  if (call.kind != CallKind::launch || op.submit != Submit::graph) return true;
  return context.function(call.launch.function).name == schedule.functions[op.function].name;
}

OpMatch::OpMatch(const Schedule& schedule, CallContext& context, MemoryMap& memory, ObjectMap& objects, Reach reach)
    : schedule_(schedule),
      context_(context),
      memory_(memory),
      objects_(objects),
      words_(memory, objects, reach),
      names_variables_(std::any_of(schedule.objects.begin(), schedule.objects.end(),
                                   [](const ScheduleObject& object) { return object.memory == MemoryKind::global; })),
      records_(schedule),
      ops_(schedule.ops.size()) {
  std::uint32_t bytes = 0;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const ScheduleOp& op = schedule.ops[i];
    if (op.kind != CallKind::launch || op.submit != Submit::graph) continue;
    const std::vector<ParamLayout>& params = schedule.functions[op.function].params;
    ops_[i].params = bytes;
    ops_[i].param_bytes = params.empty() ? 0 : params.back().offset + params.back().size;
    bytes += (ops_[i].param_bytes + 15) / 16 * 16;
  }
  live_bytes_.resize(bytes);
  bound_bytes_.resize(bytes);
}

const char* OpMatch::match(std::uint32_t index, const Call& call) {
  mismatch_at_ = kNone;
  const ScheduleOp& op = schedule_.ops[index];
  if (op.kind != call.kind) return "another kind of op";
  if (op.submit == Submit::direct) return match_direct(index, call);
  if (!call.plain || call.synchronous()) return "an op with flags or attributes";
  switch (op.kind) {
    case CallKind::launch:
      return match_launch(index, call);
    case CallKind::copy:
      return match_copy(index, call);
    case CallKind::set:
      return match_set(index, call);
    case CallKind::event_record:
      return match_record(index, call);
    case CallKind::event_wait:
      return match_wait(index, call);
    case CallKind::alloc_async:
      return call.memory.size == op.size && !call.memory.own_pool ? nullptr : "an allocation of another size";
    case CallKind::free_async:
      return objects_.base(op.object) == call.memory.address ? nullptr : "a free of different memory";
    default:
      return "an op that cannot be replayed";
  }
}

// Matches an op that no graph holds.
const char* OpMatch::match_direct(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  if (op.kind == CallKind::event_record) records_.record(index, call.event);
  if (op.payload) return check_payload(op, call);
  // Others rely on memory contents, which this op must not change outside that object.
  const bool brings = op.kind == CallKind::copy || op.kind == CallKind::set;
  const bool is_elsewhere = brings && op.dst.fixed && !objects_.accept(op.dst, call.transfer.dst.address);
  return is_elsewhere ? "a pointer to another object" : nullptr;
}

const char* OpMatch::match_record(std::uint32_t index, const Call& call) {
  Op& mine = ops_[index];
  if (!call.event) return "a null event";
  if (mine.live.event != call.event) mine.changed = true;
  mine.live.event = call.event;
  records_.record(index, call.event);
  return nullptr;
}

// One function, though long: each launch of each step goes through it.
const char* OpMatch::match_launch(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  const ScheduleFunction& function = schedule_.functions[op.function];
  Op& mine = ops_[index];
  if (mine.live.function != call.launch.function)
    if (const char* reason = match_function(index, call)) return reason;
  if (!same(mine.live.grid, call.launch.grid) || !same(mine.live.block, call.launch.block) ||
      mine.live.shared_bytes != call.launch.shared_bytes)
    if (const char* reason = match_shape(index, call)) return reason;
  if (!op.barrier && !function.globals.empty() && mine.info)
    if (const char* reason = check_globals(index)) return reason;
  if (mine.param_bytes == 0) return nullptr;
  std::uint8_t* const live = live_bytes_.data() + mine.params;
  const std::uint8_t* const bound = bound_bytes_.data() + mine.params;
  bool unchanged = true;
  // The schedule's layout matches the function's: checked when the handle was first seen.
  if (call.launch.kernel_params) {
    void** value = call.launch.kernel_params;
    for (const ParamLayout& param : function.params)
      unchanged &= take(*value++, param.size, live + param.offset, bound + param.offset);
  } else {
    if (!pack_params(call, context_.function(call.launch.function), live)) return "parameters that cannot be read";
    unchanged = std::memcmp(live, bound, mine.param_bytes) == 0;
  }
  if (unchanged) {
    if (mine.verified == objects_.generation()) {
      for (const ScheduleParam& param : op.pointers) objects_.use(param.pointer.object);
      return nullptr;
    }
  } else {
    mine.changed = true;
  }
  for (const ScheduleBytes& part : op.equal)
    if (std::memcmp(live + part.at, part.bytes.data(), part.bytes.size()) != 0)
      return "parameters that must not change";
  return op.barrier ? nullptr : check_pointers(index);
}

// The op has a different function than last time.
const char* OpMatch::match_function(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  const ScheduleFunction& function = schedule_.functions[op.function];
  Op& mine = ops_[index];
  const FunctionInfo& info = context_.function(call.launch.function);
  if (info.name != function.name || !info.params || *info.params != function.params) return "another kernel";
  // Its accesses were derived from its parameters: code that reaches more does not match. It may read constant
  // variables if no op of the step names a variable and so could write them.
  if (!op.barrier && function.self_contained && !info.self_contained && !(info.constants && !names_variables_))
    return "a kernel of another build";
  // Other ops may rely on what it was seen to do, or never seen to do, even if it is itself ordered with everything.
  if (function.code != 0 && info.code != function.code) return "a kernel of another build";
  if (!op.barrier && function.proven && !proves_the_same(function, info)) return "a kernel with a different proof";
  mine.live.function = call.launch.function;
  mine.live.block = {};  // its launches are unknown
  mine.info = &info;
  mine.live.is_kernel_handle = info.is_kernel_handle;
  mine.changed = true;
  return nullptr;
}

// The op has a different launch shape than last time.
const char* OpMatch::match_shape(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  Op& mine = ops_[index];
  if (op.fixed_launch &&
      (op.grid != call.launch.grid || op.block != call.launch.block || op.shared_bytes != call.launch.shared_bytes))
    return "another launch shape";
  // A graph node cannot have an empty grid; the driver also refuses it in a launch.
  for (int i = 0; i < 3; ++i) {
    if (call.launch.grid[i] == 0 || call.launch.block[i] == 0) return "an empty launch";
  }
  mine.live.grid = call.launch.grid;
  mine.live.block = call.launch.block;
  mine.live.shared_bytes = call.launch.shared_bytes;
  mine.changed = true;
  unknown_shape_ = unknown_shape_ || !taken_shapes_.has(call);
  return nullptr;
}

void OpMatch::launched(const Call& call, bool good) {
  taken_shapes_.answered(call, good);
  if (good) return;
  for (Op& op : ops_)
    if (op.live.function == call.launch.function) op.live.block = {};  // so that it is looked up when it comes again
}

const char* OpMatch::check_pointers(std::uint32_t index) {
  const ScheduleOp& op = schedule_.ops[index];
  Op& mine = ops_[index];
  const std::uint8_t* const live = live_bytes_.data() + mine.params;
  for (const ScheduleParam& param : op.pointers) {
    mismatch_at_ = param.at;
    if (!objects_.accept(param.pointer, word_at(live + param.at))) return "a pointer to another object";
  }
  // No other word may be a pointer, whatever the recorded one was.
  const PointerWords::Found found = words_.look(op, schedule_.functions[op.function], live);
  mismatch_at_ = found.reason ? found.at : kNone;
  if (found.reason) return found.reason;
  // Only for ops in a graph, whose values later calls are compared with: one that matched, but is in no graph, may
  // differ.
  mine.verified = !found.lasts || mine.changed ? 0 : objects_.generation();
  return nullptr;
}

const char* OpMatch::check_globals(std::uint32_t index) {
  const ScheduleFunction& function = schedule_.functions[schedule_.ops[index].function];
  for (std::size_t i = 0; i < function.globals.size(); ++i) {
    const ProvenGlobal& live = ops_[index].info->proof->globals[i];
    if (!memory_.find(live.address)) {
      // The program has never asked for its address.
      memory_.add({live.address, live.bytes, MemoryKind::global});
      objects_.changed();
    }
    if (!objects_.accept({function.globals[i].object, 0, true}, live.address)) return "a variable at another place";
  }
  return nullptr;
}

// Checks the present content of a copy from the host: the recorded pointers, and no others.
const char* OpMatch::check_payload(const ScheduleOp& op, const Call& call) {
  if (call.transfer.width != op.width || call.transfer.height != 1) return "a copy of another size";
  if (!objects_.accept(op.dst, call.transfer.dst.address)) return "a pointer to another object";
  const Allocation* const source = memory_.find(call.transfer.src.address);
  const bool host = source ? source->memory == MemoryKind::pinned || source->memory == MemoryKind::registered
                           : call.transfer.host_source && !call.transfer.device_source;
  if (!host) return "a copy from other memory";
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(call.transfer.src.address);
  auto known = op.payload->begin();
  for (std::uint64_t at = (8 - call.transfer.dst.address % 8) % 8; at + 8 <= call.transfer.width; at += 8) {
    const std::uint64_t word = word_at(bytes + at);
    if (known != op.payload->end() && known->at == at) {
      if (!objects_.accept(known->pointer, word)) return "a table that points to another object";
      ++known;
    } else if (memory_.may_hold(word) && memory_.find(word)) {
      return "a table with a pointer where there was none";
    }
  }
  return known == op.payload->end() ? nullptr : "a table at another place";
}

const char* OpMatch::match_copy(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  Op& mine = ops_[index];
  if (call.transfer.width != op.width || call.transfer.height != op.height) return "a copy of another size";
  if (op.height > 1 && (call.transfer.dst.pitch != op.dst_pitch || call.transfer.src.pitch != op.src_pitch))
    return "a copy of another pitch";
  if (!objects_.accept(op.dst, call.transfer.dst.address) || !objects_.accept(op.src, call.transfer.src.address))
    return "a pointer to another object";
  if (!fits(op.dst, call.transfer.dst, op) || !fits(op.src, call.transfer.src, op)) return "a copy beyond its object";
  if (op.payload)
    if (const char* reason = check_payload(op, call)) return reason;
  if (mine.live.dst.address != call.transfer.dst.address || mine.live.src.address != call.transfer.src.address)
    mine.changed = true;
  mine.live.dst = call.transfer.dst;
  mine.live.src = call.transfer.src;
  mine.live.width = call.transfer.width;
  mine.live.height = call.transfer.height;
  return nullptr;
}

const char* OpMatch::match_wait(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  const EventRecords::Found found = records_.find(call.event);
  if (op.record != kNone ? found.op != op.record || !found.this_step : found.this_step)
    return "a wait for another event";
  if (found.op == kNone) unknown_wait_ = true;
  ops_[index].live.event = call.event;
  return nullptr;
}

const char* OpMatch::match_set(std::uint32_t index, const Call& call) {
  const ScheduleOp& op = schedule_.ops[index];
  Op& mine = ops_[index];
  if (call.transfer.width != op.width || call.transfer.height != op.height || call.transfer.element != op.element)
    return "a set of another size";
  if (op.height > 1 && call.transfer.dst.pitch != op.dst_pitch) return "a set of another pitch";
  if (!objects_.accept(op.dst, call.transfer.dst.address)) return "a pointer to another object";
  if (!fits(op.dst, call.transfer.dst, op)) return "a set beyond its object";
  if (mine.live.dst.address != call.transfer.dst.address || mine.live.value != call.transfer.value) mine.changed = true;
  mine.live.dst = call.transfer.dst;
  mine.live.width = call.transfer.width;
  mine.live.height = call.transfer.height;
  mine.live.value = call.transfer.value;
  mine.live.element = call.transfer.element;
  return nullptr;
}

bool OpMatch::fits(const SchedulePointer& pointer, const Region& region, const ScheduleOp& op) const {
  const std::uint64_t offset = region.address - objects_.base(pointer.object);
  const std::uint64_t extent = op.height == 0 ? 0 : (op.height - 1) * region.pitch * (op.height > 1) + op.width;
  return offset + extent <= schedule_.objects[pointer.object].size;
}

void OpMatch::bound(std::uint32_t index) {
  Op& mine = ops_[index];
  std::memcpy(bound_bytes_.data() + mine.params, live_bytes_.data() + mine.params, mine.param_bytes);
  mine.changed = false;
}

void OpMatch::rebase() {
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    const ScheduleOp& op = schedule_.ops[i];
    Op& mine = ops_[i];
    mine.changed = true;
    mine.verified = 0;
    for (const ScheduleParam& param : op.pointers) {
      if (!schedule_.objects[param.pointer.object].step_local) continue;
      const std::uint64_t address = objects_.base(param.pointer.object) + param.pointer.offset;
      std::memcpy(live_bytes_.data() + mine.params + param.at, &address, sizeof address);
    }
    const auto move = [&](const SchedulePointer& pointer, Region& region) {
      if (pointer.object == kNone || !schedule_.objects[pointer.object].step_local) return;
      region.address = objects_.base(pointer.object) + pointer.offset;
    };
    move(op.dst, mine.live.dst);
    move(op.src, mine.live.src);
  }
}

void OpMatch::forget_event(CUevent event) {
  records_.forget(event);
  for (Op& op : ops_) {
    if (op.live.event == event) op.live.event = nullptr;
  }
}

void OpMatch::forget_functions() {
  for (Op& op : ops_) {
    op.live.function = nullptr;
    op.info = nullptr;
  }
  taken_shapes_.forget();  // a reused handle does not inherit earlier limits
}

}  // namespace nimble
