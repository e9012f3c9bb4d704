// How a StepPlayer submits: call by call, as a graph, or both in an audit.
#include <chrono>
#include <string>
#include <thread>

#include "replayer/current_context.h"
#include "replayer/step_player.h"
#include "replayer/submit.h"

namespace nimble {

std::optional<CUresult> StepPlayer::flush_early() {
  if (held_.empty()) return std::nullopt;
  ++counters_.flushes;
  const CUresult result = flush();
  return result == CUDA_SUCCESS ? std::nullopt : std::optional(result);
}

CUresult StepPlayer::submit_by_calls(const std::vector<std::uint32_t>& ops, bool on_launch_stream) {
  const CurrentContext current(driver_, cu_context_);
  CUresult first = CUDA_SUCCESS;
  for (const std::uint32_t index : ops) {
    const std::uint32_t stream = on_launch_stream ? 0 : schedule_.ops[index].stream;
    // On one stream alone there is nothing to wait for.
    if (on_launch_stream && schedule_.ops[index].kind == CallKind::event_wait) continue;
    individually(stream);
    const CUresult result = submit_call(driver_, schedule_, live_, index, streams_[stream].handle, scratch_);
    if (first == CUDA_SUCCESS) first = result;
  }
  counters_.ops_passed_through += ops.size();
  by_graphs_ = false;
  if (first != CUDA_SUCCESS) stand_aside("the driver refused an op (error " + std::to_string(first) + ")");
  return first;
}

CUresult StepPlayer::flush() {
  if (held_.empty()) return CUDA_SUCCESS;
  for (const std::uint32_t index : held_) passing_[schedule_.ops[index].segment] = step_;
  batch_.swap(held_);
  held_.clear();
  held_events_.clear();
  changed_.clear();
  return submit_by_calls(batch_, false);
}

CUresult StepPlayer::submit_ready() {
  CUresult first = CUDA_SUCCESS;
  while (next_segment_ < schedule_.segments.size() && cursor_.frontier() > schedule_.segments[next_segment_].last) {
    const std::uint32_t segment = next_segment_++;
    if (held_.empty() || passing_[segment] == step_) continue;
    const CUresult result = submit_segment(segment);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

void StepPlayer::take_batch(std::uint32_t segment) {
  batch_.clear();
  if (schedule_.streams.size() == 1) {
    batch_.swap(held_);
    held_events_.clear();
    return;
  }
  std::size_t kept = 0;
  for (const std::uint32_t index : held_) {
    if (schedule_.ops[index].segment == segment) {
      batch_.push_back(index);
    } else {
      held_[kept++] = index;
    }
  }
  held_.resize(kept);
  held_events_.clear();
  for (const std::uint32_t index : held_) {
    if (schedule_.ops[index].kind == CallKind::event_record) held_events_.push_back(live_.live(index).event);
  }
}

CUresult StepPlayer::patch_changed(std::uint32_t segment) {
  CUresult result = CUDA_SUCCESS;
  std::size_t kept = 0;
  for (const std::uint32_t index : changed_) {
    if (schedule_.ops[index].segment != segment) {
      changed_[kept++] = index;
      continue;
    }
    if (result == CUDA_SUCCESS) {
      result = graph(segment).patch(schedule_, live_, index);
      if (result != CUDA_SUCCESS) refused_ = index;
    }
    counters_.node_updates += result == CUDA_SUCCESS;
  }
  changed_.resize(kept);
  up_to_date_[segment] = result == CUDA_SUCCESS;
  return result;
}

// Hands a segment of which all ops have come to the driver: as a graph, unless it is not to be.
CUresult StepPlayer::submit_segment(std::uint32_t segment) {
  const CurrentContext current(driver_, cu_context_);
  if (run_ == Audit::Run::in_order) return flush();
  take_batch(segment);
  CUresult result = streams_.gather();
  keep_order(result);
  if (run_ == Audit::Run::audited && audit_->save(segment, streams_.launch().handle, ops_elsewhere()))
    return submit_audited(segment);
  if (result == CUDA_SUCCESS) result = patch_changed(segment);
  if (result == CUDA_SUCCESS) result = graph(segment).launch(streams_.launch().handle);
  if (result != CUDA_SUCCESS) {
    // Nothing of the segment was submitted: do it the program's way, so that it sees the errors that are its own.
    const CUresult individually = submit_by_calls(batch_, false);
    const std::string what = refused_ == kNone
                                 ? "a graph could not be launched"
                                 : "the node of op " + std::to_string(refused_) + " (" +
                                       std::string(name(schedule_.ops[refused_].kind)) + ") could not be changed";
    stand_aside(what + " (error " + std::to_string(result) + ")");
    return individually;
  }
  keep_order(streams_.launched());
  ++counters_.graph_launches;
  counters_.ops_replayed += batch_.size();
  return CUDA_SUCCESS;
}

// The graph, and then the same ops once more in the program's order, whose results stay.
CUresult StepPlayer::submit_audited(std::uint32_t segment) {
  const auto each_record = [&](auto function) {
    CUresult result = CUDA_SUCCESS;
    for (const std::uint32_t index : batch_) {
      if (result == CUDA_SUCCESS && schedule_.ops[index].kind == CallKind::event_record) result = function(index);
    }
    return result;
  };
  SegmentGraph& graph = this->graph(segment);
  const CUstream launch = streams_.launch().handle;
  CUresult result = patch_changed(segment);
  if (result == CUDA_SUCCESS)
    result = each_record([&](auto index) { return graph.record_instead(index, audit_->stand_in()); });
  if (result == CUDA_SUCCESS) result = graph.launch(launch);
  const bool launched = result == CUDA_SUCCESS;
  counters_.graph_launches += launched;
  const CUresult mended = each_record([&](auto index) { return graph.patch(schedule_, live_, index); });
  bool undone = false;
  if (launched) result = audit_->undo(launch, undone);
  CUresult answer = CUDA_SUCCESS;
  if (!launched || result == CUDA_SUCCESS) {
    answer = submit_by_calls(batch_, true);
  } else {
    // What the graph did stays, as far as it is still there; what it did not do is record the program's events.
    answer = undone ? result : each_record([&](auto index) {
      return submit_call(driver_, schedule_, live_, index, launch, scratch_);
    });
    by_graphs_ = false;
  }
  if (result == CUDA_SUCCESS) result = mended;
  if (result == CUDA_SUCCESS && answer == CUDA_SUCCESS) result = audit_->keep(launch);
  keep_order(streams_.launched());
  if (result == CUDA_SUCCESS && answer == CUDA_SUCCESS) return CUDA_SUCCESS;
  audit_->drop();
  stand_aside("the driver refused a part of an audit (error " + std::to_string(result) + ")");
  return answer;
}

void StepPlayer::audit(std::uint32_t every, std::function<std::uint64_t()> elsewhere) {
  elsewhere_ = std::move(elsewhere);
  audit_.emplace(schedule_, live_, objects_, driver_, counters_, every);
}

void StepPlayer::judge_audit() {
  // A capture forbids looking.
  if (!audit_ || !audit_->pending() || !captures_.empty()) return;
  const CurrentContext current(driver_, cu_context_);
  std::string text = audit_->judge();
  if (text.empty()) return;
  flush();
  stand_aside(std::move(text));
}

void StepPlayer::finish() {
  flush();
  streams_.release();
  finish_audits();
}

void StepPlayer::finish_audits() {
  constexpr int kMostMilliseconds = 2000;
  for (int i = 0; i < kMostMilliseconds && audit_ && audit_->pending() && aside_.empty(); ++i) {
    judge_audit();
    if (audit_->pending()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (audit_ && audit_->pending()) ++counters_.audits_skipped["the program ended before it was over"];
}

}  // namespace nimble
