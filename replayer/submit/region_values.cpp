#include "replayer/submit/region_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "nimble/internal/address_probe.h"
#include "replayer/match/op_text.h"

namespace nimble {

namespace {

// How far from memory an address derived from its begin or end may lie.
constexpr std::uint64_t kBeside = 4096;

// The first word of a launch's parameters that is not a pointer into an object, but lies next to one of `own`, which
// will move; kNone if there is none. It may be the end of that memory, as in a loop with begin and end. A rule knows
// what is not an address at all; code only proves that a word is not dereferenced, and it may be compared.
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
    if (call.kind == CallKind::free_async || call.kind == CallKind::free) released.insert(call.memory.address);
    result[i] = call.kind == CallKind::alloc_async && released.count(call.memory.address) == 0;
  }
  return result;
}

RegionValues::RegionValues(const Schedule& schedule, CallContext& context, const DriverApi& driver,
                           std::span<const Call> earlier)
    : schedule_(schedule),
      objects_(schedule, map_),
      live_(schedule, context, map_, objects_,
            Reach(driver.cuPointerGetAttribute_, driver.cuDeviceGetCount_, driver.cuDeviceGetAttribute_)) {
  for (const Call& call : earlier)
    if (call.kind == CallKind::alloc) map_.add({call.memory.address, call.memory.size, call.memory.kind});
}

std::string RegionValues::take(std::span<const RegionCall> calls) {
  objects_.begin_step();
  live_.begin_step();
  const std::vector<std::uint8_t> lasts = lasting(calls);
  // Match each op of the schedule with its call.
  std::uint32_t op = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i].call;
    const bool allocates = call.kind == CallKind::alloc || call.kind == CallKind::alloc_async;
    if (allocates) {
      map_.add({call.memory.address, call.memory.size, call.memory.kind});
      objects_.changed();
    }
    if (call.kind == CallKind::alloc || lasts[i] || !is_op(call.kind)) continue;
    if (op == schedule_.ops.size()) return "its ops are not those that were analyzed";
    if (std::string why = take(op, calls[i]); !why.empty()) return why;
    ++op;
  }
  return op == schedule_.ops.size() ? "" : "its ops are not those that were analyzed";
}

std::string RegionValues::match(std::uint32_t op, const RegionCall& made) {
  Call again = made.call;
  std::size_t bytes = made.params.size();
  std::array<void*, 5> extra{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::uint8_t*>(made.params.data()),
                             CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  again.launch.kernel_params = nullptr;
  again.launch.extra = bytes ? extra.data() : nullptr;
  const char* const reason = live_.match(op, again);
  return reason ? op_text(schedule_, op) + ": " + reason : "";
}

std::string RegionValues::take(std::uint32_t op, const RegionCall& made) {
  const Call& call = made.call;
  if (std::string why = match(op, made); !why.empty()) return why;
  if (call.kind == CallKind::alloc_async) {
    objects_.place(schedule_.ops[op].object, call.memory.address);
    own_.push_back({call.memory.address, call.memory.size});
  }
  if (const std::uint32_t at = beside(schedule_, op, made.params, own_); at != kNone)
    return op_text(schedule_, op) + ": byte " + std::to_string(at) +
           " of its parameters may be an address beside memory that the region allocates and releases";
  for (std::size_t at = 0; at + 8 <= made.params.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, made.params.data() + at, sizeof word);
    use(word);
  }
  if (call.kind == CallKind::copy || call.kind == CallKind::set) use(call.transfer.dst.address);
  if (call.kind == CallKind::copy) use(call.transfer.src.address);
  uses_all_ = uses_all_ || schedule_.ops[op].barrier;
  if (call.kind == CallKind::free_async) {
    map_.remove(call.memory.address);
    objects_.freed(call.memory.address);
    std::erase_if(own_, [&](const RegionMemory& one) { return one.base == call.memory.address; });
  }
  return {};
}

void RegionValues::use(std::uint64_t address) {
  const Allocation* const found = map_.find(address);
  if (!found || found->arena) return;
  const bool is_own =
      std::any_of(own_.begin(), own_.end(), [&](const RegionMemory& one) { return one.base == found->base; });
  if (!is_own) memory_.push_back({found->base, found->size});
}

void RegionValues::place(std::uint64_t arena) {
  if (arena) map_.add({arena, schedule_.arena_bytes, MemoryKind::stream_ordered, true});
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    if (object.step_local) objects_.place_by_plan(i, arena + object.plan_offset);
  }
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i)
    if (!schedule_.objects[i].step_local) use(objects_.base(i));
  live_.rebase();
}

}  // namespace nimble
