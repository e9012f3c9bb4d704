// How a StepPlayer submits: call by call, as a graph, or both in an audit.
#include <chrono>
#include <string>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "replayer/driver/current_context.h"
#include "replayer/step_player.h"
#include "replayer/submit/submit.h"

namespace nimble {

void StepPlayer::flush_early() {
  if (held_.empty()) return;
  ++counters_.flushes;
  flush();
}

CUresult StepPlayer::submit_by_calls(const std::vector<std::uint32_t>& ops, bool on_launch_stream) {
  const CurrentContext current(driver_, cu_context_);
  CUresult first = CUDA_SUCCESS;
  for (const std::uint32_t index : ops) {
    const std::uint32_t stream = on_launch_stream ? 0 : schedule_.ops[index].stream;
    // On one stream alone there is nothing to wait for.
    if (on_launch_stream && schedule_.ops[index].kind == CallKind::event_wait) continue;
    individually(stream);
    const Onlookers::Passage passage = op_comes(index);
    const CUresult result = submit_call(driver_, schedule_, live_, index, streams_[stream].handle, scratch_);
    op_went(passage, result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS) refused(result);
    if (first == CUDA_SUCCESS) first = result;
  }
  counters_.ops_passed_through += ops.size();
  by_graphs_ = false;
  return first;
}

void StepPlayer::flush() {
  if (held_.empty()) return;
  for (const std::uint32_t index : held_) passing_[schedule_.ops[index].segment] = step_;
  batch_.swap(held_);
  held_.clear();
  held_events_.clear();
  changed_.clear();
  submit_by_calls(batch_, false);
}

void StepPlayer::submit_ready() {
  while (cursor_.frontier() > segment_end_ && aside_.empty()) {
    const std::uint32_t segment = paths_.segments(cursor_.kind())[next_segment_++];
    find_segment_end();
    if (held_.empty() || passing_[segment] == step_) continue;
    submit_segment(segment);
  }
}

void StepPlayer::find_segment_end() {
  const auto segments = paths_.segments(cursor_.kind());
  segment_end_ = next_segment_ < segments.size() ? schedule_.segments[segments[next_segment_]].last : kNone;
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
void StepPlayer::submit_segment(std::uint32_t segment) {
  const CurrentContext current(driver_, cu_context_);
  if (run_ == Audit::Run::in_order) return flush();
  std::optional<Onlookers::Launch> unseen;
  if (is_relaxed(segment) && !(unseen = launch_unseen())) return flush();
  take_batch(segment);
  batch_begins(segment);
  CUresult result = streams_.gather();
  keep_order(result);
  if (run_ == Audit::Run::audited && audit_->save(segment, streams_.launch().handle, ops_elsewhere()))
    return submit_audited(segment, unseen);
  if (result == CUDA_SUCCESS) result = patch_changed(segment);
  if (result == CUDA_SUCCESS) result = graph(segment).launch(streams_.launch().handle);
  launched(unseen, result == CUDA_SUCCESS);
  batch_recorded(segment, result == CUDA_SUCCESS);
  if (result != CUDA_SUCCESS) {
    // Nothing of the segment was submitted: do it the program's way, so that it sees the errors that are its own.
    submit_by_calls(batch_, false);
    const std::string what = refused_ == kNone
                                 ? "a graph could not be launched"
                                 : "the node of op " + std::to_string(refused_) + " (" +
                                       std::string(name(schedule_.ops[refused_].kind)) + ") could not be changed";
    stand_aside(what + " (error " + std::to_string(result) + ")");
    return;
  }
  keep_order(streams_.launched());
  ++counters_.graph_launches;
  counters_.ops_replayed += batch_.size();
}

// The graph, and then the same ops once more in the program's order, whose results stay.
void StepPlayer::submit_audited(std::uint32_t segment, const std::optional<Onlookers::Launch>& unseen) {
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
  const bool was_launched = result == CUDA_SUCCESS;
  counters_.graph_launches += was_launched;
  launched(unseen, was_launched);
  batch_recorded(segment, false);  // but stand-ins: the program's events are recorded with the ops that follow
  const CUresult mended = each_record([&](auto index) { return graph.patch(schedule_, live_, index); });
  bool undone = false;
  if (was_launched) result = audit_->undo(launch, undone);
  bool refused_any = false;
  if (!was_launched || result == CUDA_SUCCESS) {
    refused_any = submit_by_calls(batch_, true) != CUDA_SUCCESS;
  } else {
    // What the graph did stays, as far as it is still there; what it did not do is record the program's events.
    if (undone) owed_.add(result);
    each_record([&](auto index) {
      const CUresult recorded = submit_call(driver_, schedule_, live_, index, launch, scratch_);
      if (recorded != CUDA_SUCCESS) refused(recorded);
      return CUDA_SUCCESS;
    });
    by_graphs_ = false;
  }
  if (result == CUDA_SUCCESS) result = mended;
  if (result == CUDA_SUCCESS && !refused_any) result = audit_->keep(launch);
  keep_order(streams_.launched());
  if (result == CUDA_SUCCESS && !refused_any) return;
  audit_->drop();
  stand_aside("the driver refused a part of an audit (error " + std::to_string(result) + ")");
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
  stand_aside(std::move(text));
}

void StepPlayer::finish() {
  leave();
  finish_audits();
}

void StepPlayer::finish_audits() {
  constexpr int kMostMilliseconds = 2000;
  const NotCancelled not_cancelled;
  for (int i = 0; i < kMostMilliseconds && audit_ && audit_->pending() && aside_.empty(); ++i) {
    judge_audit();
    if (audit_->pending()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (audit_ && audit_->pending()) ++counters_.audits_skipped["the program ended before it was over"];
}

}  // namespace nimble
