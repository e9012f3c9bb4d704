// What a StepPlayer binds to: graphs and arena of a step that has matched, until code, stream or context go; and in
// which of its ways the next step is submitted.
#include <algorithm>
#include <string>

#include "replayer/driver/current_context.h"
#include "replayer/step_player.h"

namespace nimble {

bool StepPlayer::bind(std::uint32_t kind) {
  // The driver looks at the memory of copies and sets when their nodes are made. What the step used may be gone by now;
  // then the next whole step will tell anew. Kernels' parameters are but bytes, and looked at before they are used.
  for (const std::uint32_t index : paths_.ops(kind)) {
    const ScheduleOp& op = schedule_.ops[index];
    if (op.submit != Submit::graph) continue;
    if (op.kind == CallKind::event_record && !live_.live(index).event) return false;
    for (const SchedulePointer* pointer : {&op.dst, &op.src}) {
      const std::uint32_t object = pointer->object;
      if (object != kNone && !schedule_.objects[object].step_local && !objects_.base(object)) return false;
    }
  }
  if (state_ == State::bound) return build_graphs(kind);
  const CurrentContext current(driver_, cu_context_);
  if (handover_failed_ ||
      (handover_ && driver_.cuStreamWaitEvent_(streams_.launch().handle, handover_, 0) != CUDA_SUCCESS)) {
    stand_aside("the step moved to a stream that cannot wait for the one before");
    return false;
  }
  if (arena_ && arena_context_ != cu_context_) {
    stand_aside("the step moved to another context");
    return false;
  }
  if (schedule_.arena_bytes && !arena_) {
    if (pool_asked_) {
      stand_aside(kPoolAsked);
      return false;
    }
    // From where the program's own allocations would come: what it asks about them the driver answers as it would have.
    CUdeviceptr arena = 0;
    const CUresult result = driver_.cuMemAllocAsync_(&arena, schedule_.arena_bytes, streams_.launch().handle);
    if (result != CUDA_SUCCESS) {
      stand_aside("no memory for the step's " + std::to_string(schedule_.arena_bytes) + " bytes (error " +
                  std::to_string(result) + ")");
      return false;
    }
    arena_ = arena;
    arena_context_ = cu_context_;
    arena_use_unknown_ = false;
    arena_pool_ = nullptr;
    driver_.cuPointerGetAttribute_(&arena_pool_, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, arena_);
    memory_.add({arena_, schedule_.arena_bytes, MemoryKind::stream_ordered, true});
  }
  individually(0);  // what the arena's memory comes behind, and all streams with it
  place_by_plan();
  if (clock_context_ != cu_context_) clock_.abandon();
  clock_context_ = cu_context_;
  live_.rebase();
  drop_graphs();
  way_ = Way::schedule;
  if (!build_graphs(kind)) return false;
  state_ = State::bound;
  return true;
}

void StepPlayer::drop_graphs() {
  for (std::vector<SegmentGraph>* all : {&graphs_, &in_order_}) {
    all->clear();
    for (std::size_t i = 0; i < schedule_.segments.size(); ++i) all->emplace_back(driver_);
  }
}

bool StepPlayer::is_bound(std::uint32_t kind) const {
  const auto segments = paths_.segments(kind);
  return std::all_of(segments.begin(), segments.end(), [&](std::uint32_t s) { return graphs_[s].built(); });
}

// Those that the kind has beside what others have had built.
bool StepPlayer::build_graphs(std::uint32_t kind) {
  const CurrentContext current(driver_, cu_context_);
  const CUstream launch = streams_.launch().handle;
  for (const std::uint32_t s : paths_.segments(kind)) {
    if (graphs_[s].built()) continue;
    const ScheduleSegment& segment = schedule_.segments[s];
    up_to_date_[s] = true;
    if (tuners_[kind].tries(Way::one_stream) && !in_program_order_) {
      if (in_order_[s].build(schedule_, in_program_order(segment), live_, cu_context_, launch) != CUDA_SUCCESS)
        for (Tuner& tuner : tuners_) tuner.exclude(Way::one_stream);
    }
    const CUresult result = graphs_[s].build(schedule_, in_program_order_ ? in_program_order(segment) : segment, live_,
                                             cu_context_, launch);
    if (result != CUDA_SUCCESS) {
      stand_aside("a graph could not be built (error " + std::to_string(result) + ")");
      return false;
    }
  }
  return true;
}

void StepPlayer::unbind(const char* why) {
  flush_early();  // while it is known what the ops are
  if (cursor_.begun()) diverge(why);
  mark_end();
  relaxed_on_ = {};  // it may end without our being told
  if (state_ == State::bound) {
    // The arena may next be used on another stream, which must come after what is on this one. No waiting here: what
    // this stream does may need this very thread.
    const CurrentContext current(driver_, cu_context_);
    CUresult result =
        captures_.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;  // a capture would swallow the record
    if (result == CUDA_SUCCESS) result = streams_.gather();
    if (result == CUDA_SUCCESS && !handover_) result = driver_.cuEventCreate_(&handover_, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(handover_, streams_.launch().handle);
    handover_failed_ = result != CUDA_SUCCESS;  // as where the program ends: no matter, unless the step comes again
  }
  state_ = State::searching;
  to_bind_ = kNone;
  live_.forget_functions();
  drop_graphs();
}

// The program is about to destroy an event. Where a node cannot be had to let go of it, the step binds anew.
void StepPlayer::let_go(CUevent event) {
  for (std::vector<SegmentGraph>* all : {&graphs_, &in_order_})
    for (SegmentGraph& graph : *all) {
      if (!graph.records(event)) continue;
      const CurrentContext current(driver_, cu_context_);
      CUresult result = stand_in_ ? CUDA_SUCCESS : driver_.cuEventCreate_(&stand_in_, CU_EVENT_DISABLE_TIMING);
      if (result == CUDA_SUCCESS) result = graph.let_go(event, stand_in_);
      if (result != CUDA_SUCCESS) return unbind();
    }
}

void StepPlayer::context_ended(const Call& call) {
  // Another context's end is no matter of ours.
  const bool ours = !call.context || call.context == cu_context_ || call.context == arena_context_;
  if (!ours) return;
  for (std::vector<SegmentGraph>* all : {&graphs_, &in_order_})
    for (SegmentGraph& graph : *all) graph.abandon();
  clock_.abandon();
  if (audit_) audit_->abandon();
  ended_ = aside_.empty();
  through_ = relaxed_launches_;
  end_ = nullptr;
  streams_.abandon();
  stand_in_ = nullptr;
  // What other threads may have put in between the program's call and the driver's answer.
  held_.clear();
  held_events_.clear();
  changed_.clear();
  stand_aside("a context ended");
}

void StepPlayer::choose_way() {
  clock_.cancel();  // of a step whose last op the driver has not had
  clock_due_ = tried_ = false;
  const bool free = state_ == State::bound && !pass_step_ && run_ == Audit::Run::graphs;
  if (!free) return;
  const Tuner::Step step = tuners_[cursor_.kind()].next();
  tried_ = !(step.timed && clock_.full());  // else the same again, until there is room for its time
  pass_step_ = step.way == Way::own;
  if (step.way != Way::own && step.way != way_) {
    way_ = step.way;
    up_to_date_.assign(up_to_date_.size(), false);
  }
  if (!step.timed) return;
  const CurrentContext current(driver_, cu_context_);
  clock_.begin(step.way, streams_.launch().handle);
}

void StepPlayer::read_clock() {
  // Other streams wait for an audit only while replay goes on.
  if (state_ != State::bound || !captures_.empty() || (audit_ && audit_->pending())) return;
  if (clock_.late()) {
    const CurrentContext current(driver_, cu_context_);
    clock_.read([this](std::uint32_t kind, Way way, double us) { tuners_[kind].add(way, us); });
  }
  if (std::all_of(tuners_.begin(), tuners_.end(), [](const Tuner& tuner) { return tuner.ends_replay(); }))
    stand_aside(tuners_.front().text());
}

}  // namespace nimble
