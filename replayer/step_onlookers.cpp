// Who looks at the step's memory from streams that are none of the step's, while its graphs run.
//
// A graph has what its ops depend on in order, and nothing else. Who reads its memory meanwhile, or writes it, without
// having been put in order with it, could see that: a flag that says that data is there, before the data. So such an op
// never runs at the same time as a graph in another order than the program's: it does not reach the driver before the
// graph is through, and from then on graphs keep the program's order. And while such an op may be running, the step is
// submitted in the program's order, too. What the program itself has put in order by events goes on as it is.
#include <algorithm>

#include "replayer/current_context.h"
#include "replayer/step_player.h"
#include "replayer/touched_addresses.h"

namespace nimble {

namespace {

constexpr std::uint8_t kRead = 1, kWritten = 2;
// So often, not much less than half of the time, a graph's ops go out call by call since somebody may be looking:
// then graphs in the program's order are the better way.
constexpr std::uint32_t kPatience = 32;
// How far beside memory a kernel's pointer into it may stand, before it and behind it: as analyzer/objects.h has it.
constexpr std::uint64_t kBefore = 255, kBehind = 1;

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
    for (const std::uint32_t index : segment.order) {
      if (!relaxed) break;
      const ScheduleOp& op = schedule_.ops[index];
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
  ranges_.reserve(watched_.most());
  watches_.store(any, std::memory_order_release);
}

bool StepPlayer::may_meet(const Call& call) const {
  return any_touched(
      call, context_, uses_globals_,
      [&](std::uint64_t address, std::uint64_t bytes, bool writes) { return watched_.meets(address, bytes, writes); },
      [&](std::uint64_t word) { return watched_.meets(word - kBehind, kBehind + kBefore + 1, true); });
}

bool StepPlayer::is_in_order_with(const StreamRef& stream) const {
  return streams_.has(0) && are_in_order(stream, streams_.launch(), cu_context_, context_);
}

bool StepPlayer::must_wait(Call& call) {
  if (!watches() || streams_.find(call.stream) != kNone || is_captured(call) || is_in_order_with(call.stream))
    return false;
  const bool meets = any_touched(
      call, context_, uses_globals_,
      [&](std::uint64_t address, std::uint64_t bytes, bool writes) { return watched_.meets(address, bytes, writes); },
      [&](std::uint64_t word) {
        // What lies just beside the memory counts where it is not in other memory that the program has.
        return watched_.meets(word, 1, true) ||
               (watched_.meets(word - kBehind, kBehind + kBefore + 1, true) && !memory_.find(word));
      });
  if (!meets) return false;
  onlookers_.looks(call);
  return graphs_may_run() && !onlookers_.is_behind(call.stream, relaxed_on_, relaxed_launches_);
}

// An event behind the last graph of the kind.
void StepPlayer::mark_end() {
  if (!relaxed_running_ || end_of_ == relaxed_launches_ || !captures_.empty()) return;
  const CurrentContext current(driver_, cu_context_);
  if (!end_ && driver_.cuEventCreate_(&end_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) end_ = nullptr;
  if (end_ && driver_.cuEventRecord_(end_, relaxed_on_.handle) == CUDA_SUCCESS) end_of_ = relaxed_launches_;
}

bool StepPlayer::graphs_may_run() {
  if (!relaxed_running_ || !captures_.empty()) return relaxed_running_;
  mark_end();
  const CurrentContext current(driver_, cu_context_);
  if (end_of_ == relaxed_launches_) relaxed_running_ = driver_.cuEventQuery_(end_) == CUDA_ERROR_NOT_READY;
  return relaxed_running_;
}

void StepPlayer::keep_program_order() {
  if (in_program_order_) return;
  unbind("others look at its memory");
  in_program_order_ = true;
  order_due_ = false;
  watches_.store(false, std::memory_order_release);
  news_ =
      "ops on other streams touch the step's memory, in no order with it: from now on its graphs keep the program's "
      "order";
}

// Whether somebody may be looking, or writing, while a graph runs that is launched now. With the step's context
// current.
bool StepPlayer::is_looked_at() {
  const bool news = watch_memory();
  const bool looked_at = onlookers_.any(driver_, news, captures_.empty(), [this](const StreamRef& stream) {
    return streams_.find(stream) != kNone || is_in_order_with(stream);
  });
  times_looked_at_ = looked_at ? times_looked_at_ + 2 : times_looked_at_ - std::min(times_looked_at_, 1u);
  order_due_ = order_due_ || times_looked_at_ >= 2 * kPatience;
  return looked_at;
}

// What the graphs use by now. Whether there is memory that was not watched so far: nobody knows who is at it.
bool StepPlayer::watch_memory() {
  if (watched_moves_ == objects_.moves() && watched_arena_ == arena_) return false;
  watched_moves_ = objects_.moves();
  watched_arena_ = arena_;
  if (ranges_.size() + schedule_.objects.size() + 1 > watched_.most()) ranges_.clear();
  bool news = false;
  for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i) {
    const ScheduleObject& object = schedule_.objects[i];
    const std::uint64_t base = objects_.base(i);
    if (uses_[i] == 0 || object.step_local || base == 0 || object.size == 0) continue;
    news = watch({base, base + object.size, (uses_[i] & kWritten) != 0}) || news;
  }
  if (arena_) news = watch({arena_, arena_ + schedule_.arena_bytes, true}) || news;
  if (news) watched_.set(ranges_);
  return news;
}

// Whether that is new. What else there was in its place is no more.
bool StepPlayer::watch(const WatchedMemory::Range& range) {
  const auto first = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [&](const WatchedMemory::Range& each) { return each.end <= range.begin; });
  if (first != ranges_.end() && first->begin == range.begin && first->end == range.end &&
      first->written >= range.written)
    return false;
  const auto last = std::partition_point(first, ranges_.end(),
                                         [&](const WatchedMemory::Range& each) { return each.begin < range.end; });
  ranges_.insert(ranges_.erase(first, last), range);
  return true;
}

// The memory there goes, and what else begins in so many bytes: who uses it from now on has nothing to do with the
// step.
void StepPlayer::unwatch(std::uint64_t address, std::uint64_t size) {
  const auto first = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [&](const WatchedMemory::Range& each) { return each.begin < address; });
  const auto last = std::partition_point(first, ranges_.end(), [&](const WatchedMemory::Range& each) {
    return each.begin - address < std::max<std::uint64_t>(size, 1);
  });
  if (first == last) return;
  ranges_.erase(first, last);
  watched_.set(ranges_);
  watched_moves_ = 0;
}

// A graph of the segment was launched, and with it what batch_ has.
void StepPlayer::launched(std::uint32_t segment) {
  const bool relaxed = is_relaxed(segment);
  if (relaxed) {
    ++relaxed_launches_;
    relaxed_running_ = true;
    relaxed_on_ = streams_.launch();
  }
  for (const std::uint32_t index : batch_) {
    if (schedule_.ops[index].kind != CallKind::event_record) continue;
    // A record is behind all that comes before it on its stream, and so the last op of all behind the graph.
    const bool is_last = streams_.count() == 1 && index == batch_.back();
    onlookers_.recorded(live_.live(index).event, relaxed_on_, relaxed_launches_ - (relaxed && !is_last ? 1 : 0));
  }
}

void StepPlayer::ordered(const Call& call) {
  const bool of_step = streams_.find(call.stream) != kNone;
  if (may_record(call.kind)) {
    onlookers_.forget_events();
  } else if (call.kind == CallKind::event_wait) {
    of_step ? onlookers_.work_waits(call.event) : onlookers_.waits(call.stream, call.event);
  } else if (call.kind == CallKind::event_record && of_step) {
    onlookers_.recorded(call.event, relaxed_on_, relaxed_launches_);
  } else if (call.kind == CallKind::event_record) {
    onlookers_.recorded_outside(call.event, call.stream);
  } else {
    onlookers_.forget(call.event);
    onlookers_.forget(call.event2);
  }
}

}  // namespace nimble
