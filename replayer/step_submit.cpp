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

CUresult StepPlayer::flush() {
  if (held_.empty()) return CUDA_SUCCESS;
  const CurrentContext current(driver_, cu_context_);
  CUresult first = CUDA_SUCCESS;
  for (const std::uint32_t index : held_) {
    const CUresult result = submit_call(driver_, schedule_, live_, index, stream_.handle, scratch_);
    if (first == CUDA_SUCCESS) first = result;
  }
  counters_.ops_passed_through += held_.size();
  passing_segment_ = schedule_.ops[held_.front()].segment;
  by_graphs_ = false;
  held_.clear();
  held_events_.clear();
  changed_.clear();
  if (first != CUDA_SUCCESS) stand_aside("the driver refused an op (error " + std::to_string(first) + ")");
  return first;
}

CUresult StepPlayer::patch_changed(std::uint32_t segment) {
  CUresult result = CUDA_SUCCESS;
  for (const std::uint32_t index : changed_) {
    if (result == CUDA_SUCCESS) result = graph(segment).patch(schedule_, live_, index);
  }
  counters_.node_updates += result == CUDA_SUCCESS ? changed_.size() : 0;
  up_to_date_[segment] = result == CUDA_SUCCESS;
  changed_.clear();
  return result;
}

std::optional<CUresult> StepPlayer::submit_segment(std::uint32_t segment) {
  const CurrentContext current(driver_, cu_context_);
  if (run_ == Audit::Run::in_order) return flush();
  if (run_ == Audit::Run::audited && audit_->save(segment, stream_.handle, ops_elsewhere()))
    return submit_audited(segment);
  CUresult result = patch_changed(segment);
  if (result == CUDA_SUCCESS) result = graph(segment).launch(stream_.handle);
  if (result != CUDA_SUCCESS) {
    // Nothing of the segment was submitted: do it the program's way, so that it sees the errors that are its own.
    const CUresult individually = flush();
    stand_aside("a graph could not be launched (error " + std::to_string(result) + ")");
    return individually;
  }
  ++counters_.graph_launches;
  counters_.ops_replayed += held_.size();
  held_.clear();
  held_events_.clear();
  return CUDA_SUCCESS;
}

// The graph, and then the same ops once more in the program's order, whose results stay.
CUresult StepPlayer::submit_audited(std::uint32_t segment) {
  const auto each_record = [&](auto function) {
    CUresult result = CUDA_SUCCESS;
    for (const std::uint32_t index : held_) {
      if (result == CUDA_SUCCESS && schedule_.ops[index].kind == CallKind::event_record) result = function(index);
    }
    return result;
  };
  SegmentGraph& graph = this->graph(segment);
  CUresult result = patch_changed(segment);
  if (result == CUDA_SUCCESS)
    result = each_record([&](auto index) { return graph.record_instead(index, audit_->stand_in()); });
  if (result == CUDA_SUCCESS) result = graph.launch(stream_.handle);
  const bool launched = result == CUDA_SUCCESS;
  counters_.graph_launches += launched;
  const CUresult mended = each_record([&](auto index) { return graph.patch(schedule_, live_, index); });
  bool undone = false;
  if (launched) result = audit_->undo(stream_.handle, undone);
  CUresult answer = CUDA_SUCCESS;
  if (!launched || result == CUDA_SUCCESS) {
    answer = flush();
  } else {
    // What the graph did stays, as far as it is still there; what it did not do is record the program's events.
    answer = undone ? result : each_record([&](auto index) {
      return submit_call(driver_, schedule_, live_, index, stream_.handle, scratch_);
    });
    by_graphs_ = false;
    held_.clear();
    held_events_.clear();
  }
  if (result == CUDA_SUCCESS) result = mended;
  if (result == CUDA_SUCCESS && answer == CUDA_SUCCESS) result = audit_->keep(stream_.handle);
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

void StepPlayer::finish_audits() {
  constexpr int kMostMilliseconds = 2000;
  for (int i = 0; i < kMostMilliseconds && audit_ && audit_->pending() && aside_.empty(); ++i) {
    judge_audit();
    if (audit_->pending()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (audit_ && audit_->pending()) ++counters_.audits_skipped["the program ended before it was over"];
}

}  // namespace nimble
