#include <algorithm>
#include <utility>

#include "analyzer/errors.h"
#include "replayer/bundle/runs.h"

namespace nimble::bundle {

namespace {

void check(CUresult result, const char* doing) { LiveDriver::check(result, doing); }

// What leads nowhere was found out when the step was recorded; what there happens to be at such an address in this
// process is no memory of the step's.
Reach knows_no_memory() {
  return Reach([](void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; },
               [](int* count) { return *count = 0, CUDA_SUCCESS; },
               [](int*, CUdevice_attribute, CUdevice) { return CUDA_ERROR_INVALID_VALUE; });
}

}  // namespace

BySchedule::BySchedule(LiveDriver& driver, const Bundle& bundle, const RecordedStep& step, const Placement& placement,
                       LiveOps& ops, Schedule schedule, const std::string& source)
    : driver_(driver),
      step_(step),
      ops_(ops),
      schedule_(std::move(schedule)),
      objects_(schedule_, memory_),
      live_(schedule_, driver, memory_, objects_, knows_no_memory()),
      watch_(driver) {
  match(bundle, placement, source);
  build();
  move_direct_ops(placement);
}

BySchedule::~BySchedule() {
  graphs_.clear();
  if (arena_) driver_.cuMemFree_(arena_);
}

// The step passes by, as it does before replay: what stands for what is learned from its calls.
void BySchedule::match(const Bundle& bundle, const Placement& placement, const std::string& source) {
  const auto fail = [&](const std::string& why) {
    throw analyzer::InputError(source, 0, "",
                               why + ". Make it with nimble-analyze BUNDLE/trace.json --step " +
                                   std::to_string(bundle.first_seq) + " " + std::to_string(bundle.last_seq));
  };
  if (schedule_.ops.size() != step_.ops())
    fail("is for a step of " + std::to_string(schedule_.ops.size()) + " ops, and the bundle's has " +
         std::to_string(step_.ops()));
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
    if (op.kind == CallKind::alloc_async) {
      memory_.add({address, moment.call->size, MemoryKind::stream_ordered});
      if (op.submit == Submit::plan) objects_.place(op.object, address);
    }
    if (op.kind == CallKind::free_async) {
      memory_.remove(address);
      objects_.freed(address);
    }
  }
}

void BySchedule::build() {
  for (std::uint32_t i = 0; i < step_.ops() && !stream_; ++i)
    if (schedule_.ops[i].stream == 0) stream_ = ops_.stream(step_.op(i).stream);
  if (!stream_) throw Refused("the schedule puts nothing on its first stream");
  if (schedule_.arena_bytes) {
    if (driver_.api().cuMemAlloc_(&arena_, schedule_.arena_bytes) != CUDA_SUCCESS) {
      arena_ = 0;
      throw Refused("the device has no room for the " + std::to_string(schedule_.arena_bytes >> 20) +
                    " MiB of the schedule's memory plan");
    }
    for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i)
      if (schedule_.objects[i].step_local) objects_.place_by_plan(i, arena_ + schedule_.objects[i].plan_offset);
  }
  live_.rebase();
  graphs_.reserve(schedule_.segments.size());
  for (const ScheduleSegment& segment : schedule_.segments) {
    graphs_.emplace_back(driver_.api());
    check(graphs_.back().build(schedule_, segment, live_, driver_.context(), stream_), "when a graph is built");
  }
}

// What the step allocates for itself lies in the plan's place, for the calls between the graphs, too.
void BySchedule::move_direct_ops(const Placement& placement) {
  struct Local {
    std::uint64_t address = 0;  // as it was recorded, here
    std::uint32_t object = kNone;
  };
  std::vector<Local> alive;
  direct_.resize(step_.ops());
  for (std::uint32_t i = 0; i < step_.ops(); ++i) {
    const ScheduleOp& op = schedule_.ops[i];
    if (op.submit == Submit::plan && op.kind == CallKind::alloc_async)
      alive.push_back({placement.here(step_.op(i).address), op.object});
    if (op.submit == Submit::plan && op.kind == CallKind::free_async)
      std::erase_if(alive, [&](const Local& local) { return local.object == op.object; });
    if (op.submit != Submit::direct) continue;
    direct_[i] = ops_.moved(i, [&](std::uint64_t word) -> std::uint64_t {
      for (const Local& local : alive)
        if (word - local.address < schedule_.objects[local.object].size)
          return word - local.address + arena_ + schedule_.objects[local.object].plan_offset;
      return word;
    });
  }
}

std::uint32_t BySchedule::lanes() const {
  std::uint32_t lanes = 1;
  for (const ScheduleSegment& segment : schedule_.segments) lanes = std::max(lanes, segment.lanes);
  return lanes;
}

RunTime BySchedule::run() {
  // As with all that the step allocates: what the run before has left there must not pass for this one's.
  constexpr unsigned char kPattern = 0xa5;
  if (arena_) check(driver_.cuMemsetD8_(arena_, kPattern, schedule_.arena_bytes), "when memory is filled");
  check(driver_.cuCtxSynchronize_(), "when memory is filled");
  return watch_.time([this] { submit_all(); });
}

// All on one stream, in the order of the schedule's segments and of what lies between them.
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
    if (direct_[moment.op]) check(ops_.submit(*direct_[moment.op], stream_), "for an op of the step");
    if (next < graphs_.size() && schedule_.segments[next].last == moment.op)
      check(graphs_[next++].launch(stream_), "when a graph is launched");
  }
  check(api.cuEventRecord_(watch_.end(), stream_), "for an event");
}

}  // namespace nimble::bundle
