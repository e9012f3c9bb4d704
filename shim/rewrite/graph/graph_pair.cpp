#include "shim/rewrite/graph/graph_pair.h"

#include <thread>
#include <utility>
#include <vector>

#include "replayer/driver/current_context.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

GraphPair::GraphPair(const GraphApi& api, const DriverApi& driver, Tune tune, std::uint64_t number, CUcontext made_in)
    : api_(api),
      driver_(driver),
      number_(number),
      made_in_(made_in),
      work_(std::make_shared<LaunchedWork>(driver)),
      rewritten_(api),
      faster_(driver, tune) {}

GraphPair::~GraphPair() {
  if (work_->context_gone()) {
    rewritten_.abandon();
    return;
  }
  faster_.close();
  if (tried_) driver_.cuEventDestroy_(tried_);
}

void GraphPair::describe(CUcontext context, GraphFacts::Nodes nodes) {
  context_ = context;
  facts_.describe(std::move(nodes));
}

// ---- launches ----

// A default stream belongs to the current context, which may not be the graph's.
bool GraphPair::is_of_another_context(const StreamRef& stream) const {
  CUcontext there = nullptr;
  return (stream.is_legacy() || stream.is_per_thread()) && driver_.cuCtxGetCurrent_(&there) == CUDA_SUCCESS &&
         there != context_;
}

CUresult GraphPair::launch_elsewhere(CUgraphExec own, const StreamRef& stream) noexcept {
  keep_from_launch("it is launched on the default stream of another context");
  if (last_was_rewritten_.load(std::memory_order_relaxed)) order_after_last_launch(stream);
  const CUresult result = api_.cuGraphLaunch_(own, stream.handle);
  if (result == CUDA_SUCCESS) last_was_rewritten_.store(false, std::memory_order_release);
  return result;
}

// Whether our event can be recorded after a launch on this stream. Not on one of another context.
bool GraphPair::follow(const StreamRef& stream) {
  if (takes_ == stream.key) return true;
  for (CUevent* event : {&work_->last_launch, &tried_})
    if (!*event && driver_.cuEventCreate_(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      *event = nullptr;
      return false;
    }
  if (driver_.cuEventRecord_(tried_, stream.handle) != CUDA_SUCCESS) return false;
  int priority = 0;
  if (rewritten_.priority() &&
      (driver_.cuStreamGetPriority_(stream.handle, &priority) != CUDA_SUCCESS || priority != *rewritten_.priority())) {
    keep_from_launch("it is launched on a stream of another priority");
    return false;
  }
  takes_ = stream.key;
  return true;
}

// Orders later work on the stream after the last launch.
void GraphPair::order_after_last_launch(const StreamRef& stream) {
  if (driver_.cuStreamWaitEvent_(stream.handle, work_->last_launch, 0) == CUDA_SUCCESS) return;
  // The host waits instead, if the driver lets it, without invalidating another thread's capture.
  const RelaxedCaptures relaxed(api_.cuThreadExchangeStreamCaptureMode_);
  while (driver_.cuEventQuery_(work_->last_launch) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
}

GraphPair::Launch GraphPair::launch(CUgraphExec own, const StreamRef& stream, bool may_time, bool looked_at) noexcept {
  Launch made;
  const std::lock_guard only_one(order_);
  if (work_->context_gone()) {
    made.result = api_.cuGraphLaunch_(own, stream.handle);
    return made;
  }
  if (is_of_another_context(stream)) {
    made.result = launch_elsewhere(own, stream);
    return made;
  }
  const CurrentContext current(driver_, context_);
  bool kept = kept_.load(std::memory_order_acquire) || faster_.ends();
  if (!kept && !follow(stream)) {
    // Without an event, only the same graph could be launched after it.
    kept = true;
    kept_.store(true, std::memory_order_release);
  }
  const FasterGraph::Turn turn = faster_.next();
  const bool before = last_was_rewritten_.load(std::memory_order_relaxed);
  made.rewritten = !kept && !looked_at && turn.is_rewritten();
  const bool timed = may_time && !kept && !looked_at && turn.timed;
  if (before != made.rewritten && work_->last_launch) order_after_last_launch(stream);
  if (timed) faster_.begin(turn, stream.handle);
  if (!launch_chosen(own, stream, before, made)) kept = true;
  if (made.result != CUDA_SUCCESS) {
    // Nothing was launched: later work is still ordered after the last launch.
    faster_.cancel();
    last_was_rewritten_.store(before, std::memory_order_release);
    return made;
  }
  if (kept) faster_.cancel();
  if (timed) faster_.end(stream.handle);
  last_was_rewritten_.store(made.rewritten, std::memory_order_release);
  if (!kept) launched(stream, may_time, /*counts=*/may_time && !looked_at, made);
  return made;  // if it is kept, from here on its own is launched, and the driver orders these launches
}

// Launches the one that `made` names. False if that is the rewritten one and the driver refuses it: then none of it
// runs, and from now on the program's own is launched, ordered after the earlier launches.
bool GraphPair::launch_chosen(CUgraphExec own, const StreamRef& stream, bool before, Launch& made) {
  const bool chosen = made.rewritten;
  if (chosen) {
    last_was_rewritten_.store(true, std::memory_order_release);
    made.result = rewritten_.launch(stream.handle);
    if (made.result == CUDA_SUCCESS) return true;
    made.rewritten = false;
    kept_.store(true, std::memory_order_release);
    if (before) order_after_last_launch(stream);
  }
  made.result = api_.cuGraphLaunch_(own, stream.handle);
  return !chosen;
}

// One of the two runs, and the other may be launched next.
void GraphPair::launched(const StreamRef& stream, bool may_time, bool counts, Launch& made) {
  // Another thread may begin to capture meanwhile, and the query would invalidate that capture.
  const RelaxedCaptures relaxed(may_time ? api_.cuThreadExchangeStreamCaptureMode_ : nullptr);
  if (driver_.cuEventRecord_(work_->last_launch, stream.handle) != CUDA_SUCCESS)
    driver_.cuStreamSynchronize_(stream.handle);
  if (!counts || !faster_.take_in()) return;
  try {
    made.news = faster_.news(number_);
  } catch (...) {  // out of memory: left out
  }
}

// ---- its memory ----

TransientMemory::Shared GraphPair::find_transient(CUgraphExec exec, CapturedGraphs& captured) {
  {
    const std::lock_guard lock(mutex_);
    if (transient_) return *transient_;
  }
  std::vector<TransientMemory::Shared> found = captured.transient_of(exec);
  const bool is_one = found.size() <= 1;
  // A graph that several captures have built is rare: it keeps all of its memory.
  if (!is_one && captured.keep(nullptr, exec)) found.clear();
  TransientMemory::Shared part = found.empty() ? nullptr : found.front();
  if (!is_one) return part;
  const std::lock_guard lock(mutex_);
  transient_ = part;
  all_is_there_.store(!part, std::memory_order_release);
  return part;
}

bool GraphPair::is_transient_known() const {
  const std::lock_guard lock(mutex_);
  return transient_.has_value();
}

void GraphPair::forget_transient() {
  const std::lock_guard lock(mutex_);
  transient_.reset();
  all_is_there_.store(false, std::memory_order_release);
}

// ---- why it is kept ----

bool GraphPair::keep(const std::string& why) {
  const std::lock_guard lock(mutex_);
  const bool before = kept_.exchange(true, std::memory_order_acq_rel);
  if (why_kept_.empty()) why_kept_ = why;
  return !before;
}

// Kept even if memory for the text runs out.
void GraphPair::keep_from_launch(const char* why) noexcept try { keep(why); } catch (...) {
  kept_.store(true, std::memory_order_release);
}

void GraphPair::code_goes(const ImageInfo* image) {
  if (facts_.code_goes(image)) keep("code of its kernels was unloaded");
}

bool GraphPair::give_back() {
  const std::unique_lock not_launched(order_, std::try_to_lock);
  if (!not_launched || work_->context_gone() || !passes()) return false;
  const CurrentContext current(driver_, context_);
  const RelaxedCaptures relaxed(api_.cuThreadExchangeStreamCaptureMode_);
  return rewritten_.let_go();
}

void GraphPair::context_ended(CUcontext context) {
  if (context && context != context_) {  // whose memory its nodes may name
    facts_.any_memory_goes();
    return;
  }
  work_->context_goes();
  keep("its context has ended");
}

GraphStatus GraphPair::status(CUgraphExec exec) const {
  const FasterGraph::Decided decided = faster_.decided();
  const std::lock_guard lock(mutex_);
  GraphStatus status;
  status.exec = exec;
  status.nodes = facts_.nodes();
  status.streams = facts_.streams();
  status.strays = strays_;
  status.own_us = decided.own_us;
  status.rewritten_us = decided.rewritten_us;
  status.text = why_kept_;
  using State = GraphStatus::State;
  const bool kept = kept_.load(std::memory_order_acquire);
  if (kept && why_kept_.empty()) status.text = "the driver refused the rewritten one";
  status.state = kept                    ? State::kept
                 : !decided.any          ? State::trying
                 : decided.own_is_faster ? State::own
                                         : State::rewritten;
  return status;
}

}  // namespace nimble::shim
