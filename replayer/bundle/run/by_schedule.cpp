#include "replayer/bundle/run/by_schedule.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "analyzer/base/errors.h"
#include "nimble/internal/step_paths.h"

namespace nimble::bundle {

namespace {

void check(CUresult result, const char* doing) { LiveDriver::check(result, doing); }

// Recording established which words point nowhere; whatever is at such an address in this process is not the step's
// memory.
Reach knows_no_memory() {
  return Reach([](void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; },
               [](int* count) { return *count = 0, CUDA_SUCCESS; },
               [](int*, CUdevice_attribute, CUdevice) { return CUDA_ERROR_INVALID_VALUE; });
}

std::string how_to_make_one(const Bundle& bundle) {
  return "Make it with nimble-analyze BUNDLE/trace.json --step " + std::to_string(bundle.first_seq) + " " +
         std::to_string(bundle.last_seq);
}

}  // namespace

std::vector<Schedule> schedules_for(const Schedule& schedule, const RecordedStep& step, const Bundle& bundle,
                                    const std::string& source) {
  const StepPaths paths(schedule);
  std::vector<Schedule> found;
  for (std::uint32_t kind = 0; kind < paths.kinds(); ++kind) {
    if (paths.ops(kind).size() != step.ops()) continue;
    Schedule alone = kind_alone(schedule, paths, kind);
    std::uint32_t op = 0;
    while (op < step.ops() && alone.ops[op].kind == step.op(op).kind) ++op;
    // With only one kind, the run itself reports what does not fit.
    if (op == step.ops() || paths.kinds() == 1) found.push_back(std::move(alone));
  }
  if (!found.empty()) return found;
  std::string sizes;
  for (std::uint32_t kind = 0; kind < paths.kinds(); ++kind)
    sizes += (kind == 0 ? "" : kind + 1 == paths.kinds() ? " and " : ", ") + std::to_string(paths.ops(kind).size());
  const std::string has = paths.kinds() == 1
                              ? "is for a step of " + sizes + " ops"
                              : "holds " + std::to_string(paths.kinds()) + " kinds of step, of " + sizes + " ops";
  throw analyzer::InputError(
      source, 0, "",
      has + ", and none is the bundle's, of " + std::to_string(step.ops()) + ". " + how_to_make_one(bundle));
}

BySchedule::BySchedule(LiveDriver& driver, const Bundle& bundle, const RecordedStep& step, const Payloads& payloads,
                       const Placement& placement, LiveOps& ops, Schedule schedule, const std::string& source)
    : driver_(driver),
      step_(step),
      ops_(ops),
      schedule_(std::move(schedule)),
      objects_(schedule_, memory_),
      live_(schedule_, driver, memory_, objects_, knows_no_memory()),
      watch_(driver),
      arena_(driver),
      direct_(schedule_.ops.size()) {
  make_arena();
  match(bundle, payloads, placement, source);
  build();
}

BySchedule::Arena::~Arena() {
  if (address) driver.cuMemFree_(address);
}

void BySchedule::make_arena() {
  if (schedule_.arena_bytes == 0) return;
  if (driver_.api().cuMemAlloc_(&arena_.address, schedule_.arena_bytes) == CUDA_SUCCESS) return;
  arena_.address = 0;
  throw Refused("the device has no room for the " + std::to_string(schedule_.arena_bytes >> 20) +
                " MiB of the schedule's memory plan");
}

// Runs the step through matching, as before replay: its calls tell what stands for what.
void BySchedule::match(const Bundle& bundle, const Payloads& payloads, const Placement& placement,
                       const std::string& source) {
  const auto fail = [&](const std::string& why) {
    throw analyzer::InputError(source, 0, "", why + ". " + how_to_make_one(bundle));
  };
  for (const BundleObject& object : bundle.objects)
    if (object.start) memory_.add({placement.here(object.address), object.size, object.memory});
  live_.begin_step();
  objects_.begin_step();
  for (const Moment& moment : step_.moments()) {
    const std::uint64_t address = placement.here(moment.call->address);
    if (moment.op == kNone) {
      if (moment.call->kind == CallKind::alloc) memory_.add({address, moment.call->size, moment.call->memory});
      if (moment.call->kind == CallKind::free) memory_.remove(address), objects_.freed(address);
      continue;
    }
    const ScheduleOp& op = schedule_.ops[moment.op];
    if (const char* const why = live_.match(moment.op, ops_.call(moment.op)))
      fail("does not fit the bundle: where it has a " + std::string(name(op.kind)) + ", " + step_.describe(moment.op) +
           " is " + why);
    pass_addresses(moment.op);
    if (const BundlePayload* const taken = payloads.source(moment.op)) pass_source(*taken);
    if (op.kind == CallKind::alloc_async) {
      memory_.add({address, moment.call->size, MemoryKind::stream_ordered});
      if (op.submit == Submit::plan) {
        objects_.place(op.object, address);
        const ScheduleObject& object = schedule_.objects[op.object];
        locals_.push_back({moment.call->address, address, object.size, arena_.address + object.plan_offset, op.object});
        alive_.push_back(locals_.back());
      }
    }
    if (op.kind == CallKind::free_async) {
      memory_.remove(address);
      objects_.freed(address);
      if (op.submit == Submit::plan)
        std::erase_if(alive_, [&](const Local& local) { return local.object == op.object; });
    }
  }
}

// Where the plan puts the object at this address at this point of the step. An address at an object's end belongs to it
// unless another one begins there.
std::uint64_t BySchedule::planned(std::uint64_t word, bool ends_alone) const {
  const bool taken = memory_.find(word) != nullptr;
  for (const Local& local : alive_) {
    if (!ends_alone && word - local.address < local.size) return word - local.address + local.planned;
    if (!taken && word - local.address == local.size) return word - local.address + local.planned;
  }
  return word;
}

// The op as the program would call it under replay, with addresses in the plan. OpMatch::rebase rewrites the known
// pointers of a graph's op: but not ends, nor words of ops that may point anywhere.
void BySchedule::pass_addresses(std::uint32_t index) {
  const ScheduleOp& op = schedule_.ops[index];
  if (op.submit == Submit::direct) {
    direct_[index] = ops_.moved(index, [this](std::uint64_t word) { return planned(word, false); });
    return;
  }
  if (op.submit != Submit::graph || op.kind != CallKind::launch) return;
  bool any = false;
  const auto moved = ops_.moved(index, [&](std::uint64_t word) {
    const std::uint64_t there = planned(word, !op.barrier);
    any = any || there != word;
    return there;
  });
  if (any && live_.match(index, moved->call))
    throw Refused(step_.describe(index) +
                  " gets the end of memory that the step allocates, and the schedule depends on that address");
}

// A table's targets lie in the plan: the program would have put those addresses there. Words lie at multiples of 8 of
// the destination.
void BySchedule::pass_source(const BundlePayload& source) {
  const Call& call = ops_.call(source.op);
  if (alive_.empty()) return;
  // Most words are numbers, and there may be many.
  std::uint64_t low = ~std::uint64_t{0}, high = 0;
  for (const Local& local : alive_) {
    low = std::min(low, local.address);
    high = std::max(high, local.address + local.size);
  }
  for (std::uint64_t at = (8 - call.transfer.dst.address % 8) % 8; at + 8 <= source.bytes; at += 8) {
    std::uint64_t recorded = 0;
    const std::uint64_t place = call.transfer.src.address + at;
    std::memcpy(&recorded, reinterpret_cast<const void*>(place), sizeof recorded);
    if (recorded < low || recorded > high) continue;
    const std::uint64_t there = planned(recorded, false);
    if (there == recorded) continue;
    const auto [known, fresh] = rewritten_.try_emplace(place, Rewritten{recorded, there});
    if (!fresh && known->second.planned != there)
      throw Refused(
          "two copies of the step take the same table from the host, but each needs it to point to different memory");
  }
}

void BySchedule::build() {
  for (std::uint32_t i = 0; i < step_.ops() && !stream_; ++i)
    if (schedule_.ops[i].stream == 0) stream_ = ops_.stream(step_.op(i).stream);
  if (!stream_) throw Refused("the schedule puts nothing on its first stream");
  for (std::uint32_t i = 0; arena_.address && i < schedule_.objects.size(); ++i)
    if (schedule_.objects[i].step_local) objects_.place_by_plan(i, arena_.address + schedule_.objects[i].plan_offset);
  live_.rebase();
  graphs_.reserve(schedule_.segments.size());
  for (const ScheduleSegment& segment : schedule_.segments) {
    graphs_.emplace_back(driver_.api());
    check(graphs_.back().build(schedule_, segment, live_, driver_.context(), stream_), "when a graph is built");
  }
}

bool BySchedule::same(std::uint64_t recorded, std::uint64_t found) const {
  return std::any_of(locals_.begin(), locals_.end(), [&](const Local& local) {
    return recorded - local.recorded <= local.size && found - local.planned == recorded - local.recorded;
  });
}

bool BySchedule::elsewhere(std::uint64_t word) const {
  return std::any_of(locals_.begin(), locals_.end(),
                     [&](const Local& local) { return word - local.recorded <= local.size; });
}

std::uint32_t BySchedule::lanes() const {
  std::uint32_t lanes = 1;
  for (const ScheduleSegment& segment : schedule_.segments) lanes = std::max(lanes, segment.lanes);
  return lanes;
}

RunTime BySchedule::run() {
  // As with all that the step allocates: leftovers of the previous run must not pass for this one's results.
  constexpr unsigned char kPattern = 0xa5;
  if (arena_.address)
    check(driver_.cuMemsetD8_(arena_.address, kPattern, schedule_.arena_bytes), "when memory is filled");
  check(driver_.cuCtxSynchronize_(), "when memory is filled");
  const auto rewrite = [this](std::uint64_t Rewritten::*to) {
    for (const auto& [place, word] : rewritten_)
      std::memcpy(reinterpret_cast<void*>(place), &(word.*to), sizeof(word.*to));
  };
  rewrite(&Rewritten::planned);
  const RunTime time = watch_.time([this] { submit_all(); });
  rewrite(&Rewritten::recorded);  // for the ways after this one
  return time;
}

// All on one stream, in the order of the schedule's segments and of the ops between them.
void BySchedule::submit_all() {
  const DriverApi& api = driver_.api();
  check(api.cuEventRecord_(watch_.begin(), stream_), "for an event");
  std::size_t next = 0;  // segment
  next_op_ = 0;
  for (const Moment& moment : step_.moments()) {
    if (moment.op == kNone) {
      const CallKind kind = moment.call->kind;
      const bool waits = kind != CallKind::alloc && kind != CallKind::free;
      const bool inside = next < graphs_.size() && schedule_.segments[next].first < next_op_;
      if (waits && !inside) check(api.cuStreamSynchronize_(stream_), "when a stream is waited for");
      continue;
    }
    next_op_ = moment.op + 1;
    if (direct_[moment.op])
      if (const CUresult result = ops_.submit(*direct_[moment.op], stream_); result != CUDA_SUCCESS)
        check(result, ("for " + step_.describe(moment.op)).c_str());
    if (next < graphs_.size() && schedule_.segments[next].last == moment.op)
      check(graphs_[next++].launch(stream_), "when a graph is launched");
  }
  check(api.cuEventRecord_(watch_.end(), stream_), "for an event");
}

}  // namespace nimble::bundle
