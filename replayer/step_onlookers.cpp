// Who looks at the step's memory from streams that are none of the step's, while its graphs run: what the player tells
// Onlookers of its graphs (order/onlookers.h), and what it does about it.
#include <algorithm>

#include "replayer/driver/current_context.h"
#include "replayer/step_player.h"

namespace nimble {

namespace {

constexpr std::uint8_t kRead = 1, kWritten = 2;
// Graphs that go out call by call since somebody may be looking count twice, others once the other way about. Where so
// many are more, graphs in the program's order are the better way: who looks once without an order will again.
constexpr std::uint32_t kPatience = 4;

class Steps final : public Onlookers::Work {
 public:
  Steps(std::size_t ranges, std::function<bool()> are_through) : Work(ranges), are_through_(std::move(are_through)) {}
  bool is_through() noexcept override { return are_through_(); }

 private:
  const std::function<bool()> are_through_;
};

// The op that records an event behind all other ops of the segment; kNone for none.
std::uint32_t last_record(const Schedule& schedule, const ScheduleSegment& segment) {
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

Call sync_call(CallKind kind, CUevent event, const StreamRef& stream) {
  Call call;
  call.kind = kind;
  call.traced = call.has_stream = true;
  call.event = event;
  call.stream = stream;
  return call;
}

}  // namespace

// Which graphs have another order than the program's, and what they use.
void StepPlayer::find_relaxed() {
  uses_.assign(schedule_.objects.size(), 0);
  const auto use = [&](std::uint32_t object, std::uint8_t how) {
    if (object != kNone) uses_[object] |= how;
  };
  bool any = false;
  for (const ScheduleSegment& segment : schedule_.segments) {
    const bool relaxed = !has_program_order(segment);
    relaxed_.push_back(relaxed);
    any = any || relaxed;
    records_.push_back(false);
    last_records_.push_back(last_record(schedule_, segment));
    for (const std::uint32_t index : segment.order) {
      const ScheduleOp& op = schedule_.ops[index];
      if (op.kind == CallKind::event_record) records_.back() = true;
      if (!relaxed) continue;
      use(op.dst.object, kRead | kWritten);
      use(op.src.object, kRead);
      for (const ScheduleParam& param : op.pointers) {
        const bool reads_only =
            op.writes && std::find(op.writes->begin(), op.writes->end(), param.pointer.object) == op.writes->end();
        use(param.pointer.object, reads_only ? kRead : kRead | kWritten);
      }
      if (op.function == kNone) continue;
      for (const ScheduleGlobal& global : schedule_.functions[op.function].globals) {
        use(global.object, global.writes ? kRead | kWritten : kRead);
        uses_globals_ = true;
      }
    }
  }
  // What pointers in memory lead to is among the step's objects, but of no op's that is known.
  if (any && rests_on_pointers_) uses_.assign(uses_.size(), kRead | kWritten);
  ranges_.reserve(schedule_.objects.size() + 1);
  runs_relaxed_ = any;
}

void StepPlayer::hold_against(Onlookers& onlookers, std::function<bool()> are_through) {
  if (!runs_relaxed_) return;
  onlookers_ = &onlookers;
  onlookers.expect();
  work_ = std::make_shared<Steps>(schedule_.objects.size() + 1, std::move(are_through));
}

// An event behind the last graph in another order than the program's.
void StepPlayer::mark_end() {
  if (through_ == relaxed_launches_ || end_of_ == relaxed_launches_ || !captures_.empty()) return;
  const CurrentContext current(driver_, cu_context_);
  if (!end_ && driver_.cuEventCreate_(&end_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) end_ = nullptr;
  if (end_ && relaxed_on_.key != 0 && driver_.cuEventRecord_(end_, relaxed_on_.handle) == CUDA_SUCCESS)
    end_of_ = relaxed_launches_;
}

bool StepPlayer::graphs_are_through() {
  if (through_ == relaxed_launches_) return true;
  const CurrentContext current(driver_, cu_context_);
  bool is_through = false;
  // An event that is recorded where nothing runs may take a moment to come true.
  if (end_of_ != relaxed_launches_ && captures_.empty() && relaxed_on_.key != 0)
    is_through = driver_.cuStreamQuery_(relaxed_on_.handle) == CUDA_SUCCESS;
  mark_end();
  if (end_of_ == relaxed_launches_) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // the question ends no capture of others
    const bool relaxed = driver_.cuThreadExchangeStreamCaptureMode_(&mode) == CUDA_SUCCESS;
    is_through = is_through || driver_.cuEventQuery_(end_) != CUDA_ERROR_NOT_READY;
    if (relaxed) driver_.cuThreadExchangeStreamCaptureMode_(&mode);
  }
  if (is_through) through_ = relaxed_launches_;
  return is_through;
}

void StepPlayer::keep_program_order() {
  if (in_program_order_) return;
  if (!captures_.empty()) {  // of which nothing may come in between
    order_due_ = true;
    return;
  }
  unbind("others look at its memory");
  in_program_order_ = true;
  order_due_ = false;
  news_ =
      "ops on other streams touch the step's memory, in no order with it: from now on its graphs keep the program's "
      "order";
}

// The graph of the segment is about to be launched, in another order than the program's. Nothing where somebody may be
// looking, or writing, while it runs. With the step's context current.
std::optional<Onlookers::Launch> StepPlayer::launch_unseen() {
  watch_memory();
  Onlookers::Works none;  // there is no other work
  const std::optional<Onlookers::Launch> launch = onlookers_->begins(work_, streams_.launch(), streams_.live(), none);
  times_looked_at_ = launch ? times_looked_at_ - std::min(times_looked_at_, 1u) : times_looked_at_ + 2;
  order_due_ = order_due_ || times_looked_at_ >= 2 * kPatience;
  return launch;
}

// What the graphs use by now.
void StepPlayer::watch_memory() {
  if (watched_moves_ == objects_.moves() && watched_arena_ == arena_) return;
  watched_moves_ = objects_.moves();
  watched_arena_ = arena_;
  ranges_.clear();
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    const std::uint64_t base = objects_.base(i);
    if (uses_[i] == 0 || object.step_local || base == 0 || object.size == 0) continue;
    ranges_.push_back({base, base + object.size, (uses_[i] & kWritten) != 0});
  }
  if (arena_) ranges_.push_back({arena_, arena_ + schedule_.arena_bytes, true});
  sort_and_merge(ranges_);
  onlookers_->uses(*work_, ranges_, uses_globals_, false);
}

// The memory there has gone, with what else begins in so many bytes.
void StepPlayer::unwatch(std::uint64_t address, std::uint64_t size) {
  if (onlookers_) onlookers_->released(address, size);
}

// The driver is about to have what batch_ has as one graph, or has had it. Events that are recorded in the midst of it
// say nothing of it.
void StepPlayer::batch_begins(std::uint32_t segment) {
  recorded_.clear();
  if (!onlookers_ || !records_[segment]) return;
  for (const std::uint32_t index : batch_) {
    if (schedule_.ops[index].kind != CallKind::event_record) continue;
    if (index == last_records_[segment]) {
      onlookers_->records_unseen(live_.live(index).event);  // until it has been launched
    } else {
      recorded_.push_back(onlookers_->records(live_.live(index).event, streams_[schedule_.ops[index].stream]));
    }
  }
}

// `good`: it was launched.
void StepPlayer::launched(const std::optional<Onlookers::Launch>& launch, bool good) {
  if (!onlookers_ || !launch) return;
  onlookers_->begun(work_, *launch, good, true);
  if (!good) return;
  ++relaxed_launches_;
  relaxed_on_ = streams_.launch();
}

// `good`: with it the driver has recorded the batch's events.
void StepPlayer::batch_recorded(std::uint32_t segment, bool good) {
  if (!onlookers_ || !records_[segment]) return;
  for (const Onlookers::Passage& passage : recorded_) onlookers_->recorded(passage, good);
  const std::uint32_t last = last_records_[segment];
  if (last != kNone) onlookers_->recorded(onlookers_->records(live_.live(last).event, streams_.launch()), good);
}

// The driver is about to have the op by itself, or has had it.
Onlookers::Passage StepPlayer::op_comes(std::uint32_t index) {
  const ScheduleOp& op = schedule_.ops[index];
  if (!onlookers_ || (op.kind != CallKind::event_record && op.kind != CallKind::event_wait)) return {};
  Onlookers::Works none;
  return onlookers_->comes(sync_call(op.kind, live_.live(index).event, streams_[op.stream]), none, nullptr, true);
}

void StepPlayer::op_went(const Onlookers::Passage& passage, bool good) {
  if (onlookers_) onlookers_->recorded(passage, good);
}

}  // namespace nimble
