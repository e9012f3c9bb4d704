#include "replayer/relaxed/step_onlookers.h"

#include <algorithm>
#include <utility>

namespace nimble {

namespace {

// Graphs that go out call by call since somebody may be looking count twice, others once the other way about. Where so
// many are more, graphs in the program's order are the better way: who looks once without an order will again.
constexpr std::uint32_t kPatience = 4;

class Steps final : public RelaxedWork {
 public:
  Steps(std::size_t ranges, std::function<bool()> are_through)
      : RelaxedWork(ranges, /*records=*/false, Gated::yes), are_through_(std::move(are_through)) {}
  bool is_through() noexcept override { return are_through_(); }

 private:
  const std::function<bool()> are_through_;
};

Call sync_call(CallKind kind, CUevent event, const StreamRef& stream) {
  Call call;
  call.kind = kind;
  call.traced = call.has_stream = true;
  call.event = event;
  call.stream = stream;
  return call;
}

}  // namespace

StepOnlookers::StepOnlookers(const Schedule& schedule, const DriverApi& driver, const OpMatch& live,
                             const StepStreams& streams, const Captures& captures, StepMemory& memory,
                             const Arena& arena)
    : schedule_(schedule),
      live_(live),
      streams_(streams),
      memory_(memory),
      arena_(arena),
      segments_(schedule),
      end_(driver, streams, captures) {
  ranges_.reserve(schedule.objects.size() + 1);
}

void StepOnlookers::attach(Onlookers& onlookers, std::function<bool()> are_through) {
  if (!runs_relaxed()) return;
  onlookers_ = &onlookers;
  memory_.tell(onlookers);
  onlookers.expect();
  work_ = std::make_shared<Steps>(schedule_.objects.size() + 1, std::move(are_through));
}

std::optional<Onlookers::Launch> StepOnlookers::launch_unseen() {
  watch_memory();
  is_in_gate_ = Onlookers::enter_gate(*work_, streams_.launch());
  Onlookers::Works none;  // there is no other work
  const std::optional<Onlookers::Launch> launch =
      is_in_gate_ ? Onlookers::Launch() : onlookers_->begins(work_, streams_.launch(), streams_.live(), none);
  times_looked_at_ = launch ? times_looked_at_ - std::min(times_looked_at_, 1u) : times_looked_at_ + 2;
  order_due_ = order_due_ || times_looked_at_ >= 2 * kPatience;
  return launch;
}

// What the graphs use by now.
void StepOnlookers::watch_memory() {
  const ObjectMap& objects = memory_.objects();
  if (moves_ == objects.moves() && arena_base_ == arena_.base()) return;
  moves_ = objects.moves();
  arena_base_ = arena_.base();
  ranges_.clear();
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    const std::uint64_t base = objects.base(i);
    const std::uint8_t use = segments_.use_of(i);
    if (use == 0 || object.step_local || base == 0 || object.size == 0) continue;
    ranges_.push_back({base, base + object.size, (use & RelaxedSegments::kWritten) != 0});
  }
  if (arena_base_) ranges_.push_back({arena_base_, arena_base_ + arena_.bytes(), true});
  sort_and_merge(ranges_);
  onlookers_->uses(work_, ranges_, segments_.use_variables(), false);
}

// Events that are recorded in the midst of a graph say nothing of it.
void StepOnlookers::batch_begins(std::uint32_t segment, std::span<const std::uint32_t> batch) {
  recorded_.clear();
  if (!onlookers_ || !segments_.records(segment)) return;
  for (const std::uint32_t index : batch) {
    if (schedule_.ops[index].kind != CallKind::event_record) continue;
    if (index == segments_.last_record(segment)) {
      onlookers_->records_unseen(live_.live(index).event);  // until it has been launched
    } else {
      recorded_.push_back(onlookers_->records(live_.live(index).event, streams_[schedule_.ops[index].stream]));
    }
  }
}

// `good`: it was launched.
void StepOnlookers::launched(const std::optional<Onlookers::Launch>& launch, bool good) {
  if (!onlookers_ || !launch) return;
  if (std::exchange(is_in_gate_, false)) {
    Onlookers::leave_gate(*work_);
  } else {
    onlookers_->begun(work_, *launch, good, true);
  }
  if (good) end_.launched();
}

void StepOnlookers::batch_recorded(std::uint32_t segment, bool good) {
  if (!onlookers_ || !segments_.records(segment)) return;
  for (const Onlookers::Passage& passage : recorded_) onlookers_->recorded(passage, good);
  const std::uint32_t last = segments_.last_record(segment);
  if (last != kNone) onlookers_->recorded(onlookers_->records(live_.live(last).event, streams_.launch()), good);
}

Onlookers::Passage StepOnlookers::op_comes(std::uint32_t index) {
  const ScheduleOp& op = schedule_.ops[index];
  if (!onlookers_ || (op.kind != CallKind::event_record && op.kind != CallKind::event_wait)) return {};
  Onlookers::Works none;
  return onlookers_->comes(sync_call(op.kind, live_.live(index).event, streams_[op.stream]), none, nullptr, true);
}

}  // namespace nimble
