#include "shim/rewrite/graph/graph_pair.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "replayer/driver/current_context.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

namespace {

// What the rewritten graph has to gain, in each turn. The driver has two states (context_bounce.h), and in the one
// where kernels follow each other sooner a graph of many edges has less of an advantage: by 0.4 to 1.2 % of a launch
// for BERT's encoder, by up to 0.3 for resnet50 and resnet101, whose own gain is 1.1 to 1.5 and 0.4 to 0.9 %
// (bench/results/2026-11-27-chains-nvidia-h100-2.md). So much is to be gained where it is not known that turns were
// held in both. Where it is, it has to be more than nothing, by what tells it from noise.
constexpr double kLeastGain = 0.01, kLeastGainInBothStates = 0.002;
constexpr std::size_t kMostOthers = 4;  // that are named, of what a graph writes to and nobody has asked about
constexpr const char* kLeadsSomewhere = "an address of its kernels' that led nowhere leads to memory now";

}  // namespace

GraphPair::GraphPair(const GraphApi& api, const DriverApi& driver, Tune tune, std::uint64_t number, CUcontext made_in)
    : api_(api),
      driver_(driver),
      tune_(tune),
      number_(number),
      made_in_(made_in),
      work_(std::make_shared<LaunchedWork>(driver)),
      rewritten_(api),
      tuner_(tune, kLeastGain),
      clock_(driver) {
  tuner_.exclude(Way::one_stream);
}

GraphPair::~GraphPair() {
  if (work_->context_gone()) {
    rewritten_.abandon();
    return;
  }
  clock_.close();
  if (tried_) driver_.cuEventDestroy_(tried_);
}

void GraphPair::describe(CUcontext context, std::uint32_t nodes, std::uint32_t streams,
                         std::vector<const ImageInfo*> images, std::vector<TraceProbe::Range> memory,
                         std::vector<std::uint64_t> nowhere, std::vector<std::uint64_t> known) {
  context_ = context;
  nodes_ = nodes;
  streams_ = streams;
  images_ = std::move(images);
  memory_.name(std::move(memory));
  memory_.name_stray(std::move(nowhere), std::move(known));
}

// Whether a launch on this stream can be followed by our event. One of another context cannot.
bool GraphPair::follow(const StreamRef& stream) {
  if (takes_ == stream.key) return true;
  for (CUevent* event : {&work_->behind, &tried_})
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

std::string GraphPair::news() const {
  const auto us = [&](Way way) {
    const double median = tuner_.medians()[static_cast<std::size_t>(way)];
    return median < 0 ? std::string("not timed") : fmt::format("{:.1f} us", median);
  };
  std::string text = fmt::format("graph {}: the {} is launched: {} a launch; the program's own {}", number_,
                                 tuner_.settled() == Way::schedule ? "rewritten one" : "program's own",
                                 us(Way::schedule), us(Way::own));
  const std::array<double, Tuner::kTurns> its = tuner_.turns(Way::schedule), own = tuner_.turns(Way::own);
  if (its.back() >= 0 && own.back() >= 0)
    text += fmt::format("; in turns {:.1f}; its own {:.1f}", fmt::join(its, ", "), fmt::join(own, ", "));
  return text;
}

// Has what comes on the stream wait for the last launch.
void GraphPair::come_behind(const StreamRef& stream) {
  if (driver_.cuStreamWaitEvent_(stream.handle, work_->behind, 0) == CUDA_SUCCESS) return;
  // The host waits instead, as far as the driver lets it; another thread's capture is not ended by that.
  const RelaxedCaptures relaxed(api_.cuThreadExchangeStreamCaptureMode_);
  while (driver_.cuEventQuery_(work_->behind) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
}

GraphPair::Launch GraphPair::launch(CUgraphExec own, const StreamRef& stream, bool may_time, bool looked_at) noexcept {
  Launch made;
  const std::lock_guard only_one(order_);
  if (work_->context_gone()) {
    made.result = api_.cuGraphLaunch_(own, stream.handle);
    return made;
  }
  // A default stream is that of the context that is current, which may be another than the graph's.
  CUcontext there = nullptr;
  if ((stream.is_legacy() || stream.is_per_thread()) && driver_.cuCtxGetCurrent_(&there) == CUDA_SUCCESS &&
      there != context_) {
    keep_from_launch("it is launched on the default stream of another context");
    if (last_was_rewritten_.load(std::memory_order_relaxed)) come_behind(stream);
    made.result = api_.cuGraphLaunch_(own, stream.handle);
    if (made.result == CUDA_SUCCESS) last_was_rewritten_.store(false, std::memory_order_release);
    return made;
  }
  const CurrentContext current(driver_, context_);
  bool kept = kept_.load(std::memory_order_acquire) || tuner_.ends_replay();
  if (!kept && !follow(stream)) {
    // Nothing could be launched after it but itself.
    kept = true;
    kept_.store(true, std::memory_order_release);
  }
  if (has_settled_.load(std::memory_order_relaxed) && has_settled_.exchange(false, std::memory_order_relaxed) &&
      tuner_.is_within_trial())
    tuner_.ask_for(kLeastGainInBothStates);
  const Tuner::Step next = tuner_.next();
  const bool before = last_was_rewritten_.load(std::memory_order_relaxed);
  made.rewritten = !kept && !looked_at && next.way == Way::schedule;
  const bool timed = may_time && !kept && !looked_at && next.timed && !clock_.full();
  if (before != made.rewritten && work_->behind) come_behind(stream);
  if (timed) clock_.begin(next.way, stream.handle);
  if (made.rewritten) {
    last_was_rewritten_.store(true, std::memory_order_release);
    made.result = rewritten_.launch(stream.handle);
    if (made.result != CUDA_SUCCESS) {
      // Nothing of it runs: so the program's own may, behind what ran before.
      made.rewritten = false;
      kept = true;
      kept_.store(true, std::memory_order_release);
      if (before) come_behind(stream);
    }
  }
  if (!made.rewritten) made.result = api_.cuGraphLaunch_(own, stream.handle);
  if (made.result != CUDA_SUCCESS) {
    // Nothing was launched: what comes next still comes behind what was.
    clock_.cancel();
    last_was_rewritten_.store(before, std::memory_order_release);
    return made;
  }
  if (kept) clock_.cancel();
  if (timed && clock_.running()) clock_.end(stream.handle);
  last_was_rewritten_.store(made.rewritten, std::memory_order_release);
  if (kept) return made;  // from here on its own is launched, which the driver keeps apart
  // Another thread may begin to capture meanwhile, which a question would end.
  const RelaxedCaptures relaxed(may_time ? api_.cuThreadExchangeStreamCaptureMode_ : nullptr);
  if (driver_.cuEventRecord_(work_->behind, stream.handle) != CUDA_SUCCESS) driver_.cuStreamSynchronize_(stream.handle);
  if (!may_time || looked_at) return made;
  const std::uint32_t decisions = tuner_.decisions();
  clock_.read([&](std::uint32_t, Way of, double us) { tuner_.add(of, us); });
  tuner_.done(clock_.late());
  if (tuner_.decisions() == decisions) return made;
  decided();
  try {
    made.news = news();
  } catch (...) {  // no memory: it can be left out
  }
  return made;
}

void GraphPair::decided() {
  tuner_.ask_for(kLeastGain);  // of another trial nothing is known yet
  own_for_good_.store(tuner_.ends_replay(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  decided_ = true;
  own_is_faster_ = tuner_.settled() == Way::own;
  own_us_ = tuner_.medians()[static_cast<std::size_t>(Way::own)];
  rewritten_us_ = tuner_.medians()[static_cast<std::size_t>(Way::schedule)];
}

bool GraphPair::keep(const std::string& why) {
  const std::lock_guard lock(mutex_);
  const bool before = kept_.exchange(true, std::memory_order_acq_rel);
  if (why_kept_.empty()) why_kept_ = why;
  return !before;
}

// Without memory for the text it is kept all the same.
void GraphPair::keep_from_launch(const char* why) noexcept try { keep(why); } catch (...) {
  kept_.store(true, std::memory_order_release);
}

void GraphPair::writes(std::optional<std::vector<GraphSchedule::Written>> written) {
  const std::lock_guard lock(mutex_);
  writes_ = std::move(written);
}

bool GraphPair::writes_only(const std::vector<TraceProbe::Range>& ranges, std::string& what_else) const {
  const std::lock_guard lock(mutex_);
  if (!writes_) what_else = "memory of which nothing is known";
  if (!writes_) return false;
  const auto is_named = [&](const GraphSchedule::Written& each) {
    const TraceProbe::Range& written = each.range;
    return std::ranges::any_of(ranges, [&](const TraceProbe::Range& range) {
      return written.address >= range.address && written.address - range.address <= range.bytes &&
             written.bytes <= range.bytes - (written.address - range.address);
    });
  };
  std::size_t others = 0;
  for (const GraphSchedule::Written& each : *writes_) {
    if (is_named(each)) continue;
    if (++others <= kMostOthers)
      what_else += fmt::format("{}{} bytes at {:#x}, by {}", others > 1 ? "; " : "", each.range.bytes,
                               each.range.address, each.by);
  }
  if (others > kMostOthers) what_else += fmt::format("; and {} more", others - kMostOthers);
  return others == 0;
}

void GraphPair::code_goes(const ImageInfo* image) {
  const auto is_of_it = [&](const ImageInfo* one) { return !one || !image || one == image; };
  if (std::any_of(images_.begin(), images_.end(), is_of_it)) keep("code of its kernels was unloaded");
  // Its nodes may name variables of code that has none of its kernels.
  const std::lock_guard lock(mutex_);
  memory_.release_all();
}

void GraphPair::memory_goes(const Call& call) {
  const std::lock_guard lock(mutex_);
  memory_.release(call);
}

const char* GraphPair::memory_comes(const Call& call) const {
  const std::lock_guard lock(mutex_);
  if (memory_.brings_together(call)) return "what it used apart may lie in one piece of memory now";
  return memory_.leads_to(call) ? kLeadsSomewhere : nullptr;
}

bool GraphPair::give_back() {
  const std::unique_lock not_launched(order_, std::try_to_lock);
  if (!not_launched || work_->context_gone() || !passes()) return false;
  const CurrentContext current(driver_, context_);
  const RelaxedCaptures relaxed(api_.cuThreadExchangeStreamCaptureMode_);
  return rewritten_.let_go();
}

void GraphPair::context_ended(CUcontext context) {
  if (context && context != context_) {  // of which its nodes may name memory
    const std::lock_guard lock(mutex_);
    memory_.release_all();
    return;
  }
  work_->context_goes();
  keep("its context has ended");
}

GraphStatus GraphPair::status(CUgraphExec exec) const {
  const std::lock_guard lock(mutex_);
  GraphStatus status;
  status.exec = exec;
  status.nodes = nodes_;
  status.streams = streams_;
  status.strays = strays_;
  status.own_us = own_us_;
  status.rewritten_us = rewritten_us_;
  status.text = why_kept_;
  using State = GraphStatus::State;
  const bool kept = kept_.load(std::memory_order_acquire);
  if (kept && why_kept_.empty()) status.text = "the driver refused the rewritten one";
  const bool decided = decided_ || tune_ == Tune::off;
  status.state = kept ? State::kept : !decided ? State::trying : own_is_faster_ ? State::own : State::rewritten;
  return status;
}

}  // namespace nimble::shim
