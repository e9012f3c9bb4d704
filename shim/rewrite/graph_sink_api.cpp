// GraphSink: what programs ask of it and tell it, by the C API.
#include <algorithm>
#include <utility>

#include "shim/record/observers/probe/probe_observer.h"
#include "shim/rewrite/context_bounce.h"
#include "shim/rewrite/graph_sink.h"
#include "shim/state/device_reader.h"
#include "shim/state/entry.h"

namespace nimble::shim {

namespace {

constexpr std::uint64_t kRoom = 16;  // one part in so many of the limit may have come since when somebody learns

}  // namespace

bool GraphSink::learn(bool learns) {
  if (learns) {
    {
      const std::lock_guard lock(threads_mutex_);
      OfThread& thread = threads_[thread_index()];
      if (!thread.learns) thread.plans.clear();  // or this thread itself would keep a recording
    }
    const std::lock_guard one_at_a_time(analysis_mutex_);
    if (const Recordings::Use present = recording_.use())
      present->catch_up();  // or it would go by how far the writer has come
    record_anew(options_.limit_bytes / kRoom);
  } else if (const Recordings::Use present = recording_.use()) {
    present->catch_up();
  }
  {
    const std::lock_guard lock(threads_mutex_);
    OfThread& thread = threads_[thread_index()];
    if (thread.learns == learns) return false;
    // Nobody begins another recording while this thread still learns.
    const Recordings::Use present = recording_.use();
    if (!learns && present) learned_bytes_.store(present->store().bytes(), std::memory_order_relaxed);
    thread.learns = learns;
    if (learns) {
      thread.made.clear();
      thread.unplanned = 0;
      thread.made_to_learn = true;
    }
  }
  ProbeObserver::probe_this_thread(learns);
  if (learns) wait_for_what_came_before();
  return true;
}

// What is seen of memory counts once all is over that was on its way. Not while anybody captures, whose capture may not
// outlive that.
void GraphSink::wait_for_what_came_before() {
  if (captures_.load(std::memory_order_relaxed) > 0) return;
  const auto wait = reinterpret_cast<decltype(&::cuCtxSynchronize)>(context_.driver_symbol("cuCtxSynchronize"));
  const CUcontext context = current_context();
  if (!wait || !context || wait() != CUDA_SUCCESS) return;
  if (const Recordings::Use present = recording_.use()) present->waited_for(context);
}

bool GraphSink::capture_again() {
  const std::lock_guard lock(threads_mutex_);
  OfThread& thread = threads_[thread_index()];
  thread.plans = std::exchange(thread.made, {});
  thread.unplanned = 0;
  if (std::ranges::any_of(thread.plans, [](const auto& plan) { return plan != nullptr; })) return true;
  // Who has learned captures again whatever came of it; who has not may do something else now.
  if (thread.made_to_learn) thread.unplanned = thread.plans.size();
  thread.plans.clear();
  return false;
}

std::uint64_t GraphSink::begin_rehearsal(std::uint64_t stream, std::uint32_t thread) {
  const std::uint64_t number = rehearsals_.begin(stream);
  stray_.began(number, thread);
  return number;
}

// How much went past.
std::uint64_t GraphSink::end_rehearsal(std::uint64_t number) {
  const std::uint64_t past = stray_.ended(number, nullptr);  // first: other threads may still be at it
  rehearsals_.end(number);
  return past;
}

bool GraphSink::rehearse(CUstream stream) {
  const StreamRef ref = stream_ref({DefaultStream::legacy}, stream);
  if (ref.is_legacy()) return false;
  const std::uint32_t index = thread_index();
  const std::lock_guard lock(threads_mutex_);
  std::optional<Rehearsing>& mine = threads_[index].rehearsing;
  if (mine) return false;
  mine = Rehearsing{begin_rehearsal(ref.key, index), ref.key, std::nullopt, 0};
  return true;
}

bool GraphSink::rehearse_part() {
  const std::uint32_t index = thread_index();
  const std::lock_guard lock(threads_mutex_);
  std::optional<Rehearsing>& mine = threads_[index].rehearsing;
  if (!mine) return false;
  if (mine->part) mine->behind += end_rehearsal(*mine->part);
  mine->part = begin_rehearsal(mine->stream, index);
  return true;
}

std::optional<GraphSink::Rehearsed> GraphSink::rehearsed() {
  const std::lock_guard lock(threads_mutex_);
  const std::optional<Rehearsing> mine = std::exchange(threads_[thread_index()].rehearsing, std::nullopt);
  if (!mine) return std::nullopt;
  const std::uint64_t behind = mine->behind + (mine->part ? end_rehearsal(*mine->part) : 0);
  return Rehearsed{end_rehearsal(mine->capture), behind};
}

std::optional<bool> GraphSink::may_launch(CUgraphExec exec, CUstream stream) const {
  const std::shared_ptr<GraphPair> graph = find(exec);
  if (!graph) return std::nullopt;
  return graph->made_in() == current_context() &&
         (captures_.load(std::memory_order_relaxed) == 0 || !capturing(stream));
}

bool GraphSink::is_idle(CUstream stream) const {
  if (captures_.load(std::memory_order_relaxed) > 0) return false;
  const auto ask = reinterpret_cast<decltype(&::cuStreamQuery)>(context_.driver_symbol("cuStreamQuery"));
  const RelaxedCaptures relaxed(context_);  // one may begin meanwhile, which the question would end
  return ask && ask(stream) == CUDA_SUCCESS;
}

bool GraphSink::settle() {
  if (captures_.load(std::memory_order_relaxed) != 0) return false;
  const RelaxedCaptures relaxed(context_);  // another thread may begin one meanwhile
  if (!shim::settle(context_)) return false;
  const std::shared_lock lock(graphs_mutex_);
  for (const auto& [exec, graph] : graphs_) graph->driver_settled();
  return true;
}

CUgraphExec GraphSink::last_of_this_thread() {
  const std::lock_guard lock(threads_mutex_);
  return threads_[thread_index()].last;
}

std::optional<GraphStatus> GraphSink::status(CUgraphExec exec) {
  if (!exec) exec = last_of_this_thread();
  const std::shared_ptr<GraphPair> graph = find(exec);
  if (!graph) return std::nullopt;
  return graph->status(exec);
}

std::optional<bool> GraphSink::writes_only(CUgraphExec exec, const std::vector<TraceProbe::Range>& ranges) {
  const std::shared_ptr<GraphPair> graph = find(exec);
  if (!graph) return std::nullopt;
  std::string what_else;
  const bool only = graph->writes_only(ranges, what_else);
  if (!only)
    options_.log(ReplayLog::info,
                 "graph " + std::to_string(graph->number()) + " may write to more than was asked about: " + what_else);
  return only;
}

bool GraphSink::keep(CUgraphExec exec) {
  const std::shared_ptr<GraphPair> graph = find(exec ? exec : last_of_this_thread());
  if (graph) graph->keep("the program wants it so");
  return graph != nullptr;
}

}  // namespace nimble::shim
