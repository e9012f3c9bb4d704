#include "replayer/submit/submitter.h"

#include <string>

#include "replayer/driver/current_context.h"
#include "replayer/driver/result_name.h"
#include "replayer/submit/submit.h"

namespace nimble {

Submitter::Submitter(const Uses& uses)
    : schedule_(uses.schedule),
      driver_(uses.driver),
      cursor_(uses.match.cursor()),
      live_(uses.match.live()),
      streams_(uses.streams),
      graphs_(uses.graphs),
      audits_(uses.audits),
      onlookers_(uses.onlookers),
      errors_(uses.errors),
      standing_(uses.standing),
      counters_(uses.counters),
      held_(uses.schedule, uses.context, live_, streams_),
      progress_(uses.schedule, uses.paths) {}

void Submitter::flush_early() {
  if (held_.empty()) return;
  ++counters_.flushes;
  flush();
}

void Submitter::flush() {
  if (held_.empty()) return;
  const std::vector<std::uint32_t>& ops = held_.take_all();
  for (const std::uint32_t index : ops) progress_.pass_segment(schedule_.ops[index].segment);
  submit_by_calls(ops, false);
}

CUresult Submitter::make_call(std::uint32_t index, const StreamRef& stream) {
  const CUresult result = submit_call(driver_, schedule_, live_, index, stream.handle, scratch_);
  if (result != CUDA_SUCCESS) errors_.refused(result);
  return result;
}

CUresult Submitter::submit_by_calls(const std::vector<std::uint32_t>& ops, bool on_launch_stream) {
  const CurrentContext current(driver_, streams_.context());
  CUresult first = CUDA_SUCCESS;
  for (const std::uint32_t index : ops) {
    const std::uint32_t stream = on_launch_stream ? 0 : schedule_.ops[index].stream;
    // On a single stream there is nothing to wait for.
    if (on_launch_stream && schedule_.ops[index].kind == CallKind::event_wait) continue;
    individually(stream);
    const Onlookers::Passage passage = onlookers_.op_comes(index);
    const CUresult result = make_call(index, streams_[stream]);
    onlookers_.op_went(passage, result == CUDA_SUCCESS);
    if (first == CUDA_SUCCESS) first = result;
  }
  counters_.ops_passed_through += ops.size();
  progress_.by_calls();
  return first;
}

CUresult Submitter::patch_changed(std::uint32_t segment, std::uint32_t& refused) {
  CUresult result = CUDA_SUCCESS;
  held_.patch_changed(segment, [&](std::uint32_t index) {
    if (result != CUDA_SUCCESS) return;
    result = graphs_[segment].patch(schedule_, live_, index);
    if (result == CUDA_SUCCESS) {
      ++counters_.node_updates;
    } else {
      refused = index;
    }
  });
  graphs_.set_up_to_date(segment, result == CUDA_SUCCESS);
  return result;
}

// Submits a segment whose ops have all come: as a graph, unless it must not be one.
void Submitter::submit(std::uint32_t segment) {
  const CurrentContext current(driver_, streams_.context());
  if (audits_.run() == Audit::Run::in_order) return flush();
  std::optional<Onlookers::Launch> unseen;
  const bool relaxed = onlookers_.watches(segment) && !graphs_.keeps_program_order(segment);
  if (relaxed && !(unseen = onlookers_.launch_unseen())) return flush();
  const std::vector<std::uint32_t>& batch = held_.take(segment);
  onlookers_.batch_begins(segment, batch);
  CUresult result = streams_.gather();
  standing_.keep_order(result);
  if (Audit* const audit = audits_.save(segment)) return submit_audited(segment, *audit, unseen);
  std::uint32_t refused = kNone;
  if (result == CUDA_SUCCESS) result = patch_changed(segment, refused);
  if (result == CUDA_SUCCESS) result = graphs_[segment].launch(streams_.launch().handle);
  onlookers_.launched(unseen, result == CUDA_SUCCESS);
  onlookers_.batch_recorded(segment, result == CUDA_SUCCESS);
  if (result != CUDA_SUCCESS) {
    // Nothing of the segment was submitted: submit it call by call, so that the program gets its own errors.
    submit_by_calls(batch, false);
    const std::string what = refused == kNone
                                 ? "a graph could not be launched"
                                 : "the node of op " + std::to_string(refused) + " (" +
                                       std::string(name(schedule_.ops[refused].kind)) + ") could not be changed";
    standing_.stand_aside(what + " (" + result_name(result) + ")");
    return;
  }
  standing_.keep_order(streams_.launched());
  ++counters_.graph_launches;
  counters_.ops_replayed += batch.size();
}

// Runs the graph, and then the same ops again in the program's order, whose results stay.
void Submitter::submit_audited(std::uint32_t segment, Audit& audit, const std::optional<Onlookers::Launch>& unseen) {
  const std::vector<std::uint32_t>& batch = held_.taken();
  const auto each_record = [&](auto function) {
    CUresult result = CUDA_SUCCESS;
    for (const std::uint32_t index : batch) {
      if (result == CUDA_SUCCESS && schedule_.ops[index].kind == CallKind::event_record) result = function(index);
    }
    return result;
  };
  SegmentGraph& graph = graphs_[segment];
  const CUstream launch = streams_.launch().handle;
  std::uint32_t refused_node = kNone;
  CUresult result = patch_changed(segment, refused_node);
  if (result == CUDA_SUCCESS)
    result = each_record([&](auto index) { return graph.record_instead(index, audit.stand_in()); });
  if (result == CUDA_SUCCESS) result = graph.launch(launch);
  const bool was_launched = result == CUDA_SUCCESS;
  counters_.graph_launches += was_launched;
  onlookers_.launched(unseen, was_launched);
  onlookers_.batch_recorded(segment,
                            false);  // records stand-ins: the ops that follow record the program's events
  const CUresult mended = each_record([&](auto index) { return graph.patch(schedule_, live_, index); });
  bool undone = false;
  if (was_launched) result = audit.undo(launch, undone);
  bool refused_any = false;
  if (!was_launched || result == CUDA_SUCCESS) {
    refused_any = submit_by_calls(batch, true) != CUDA_SUCCESS;
  } else {
    // The graph's results stay, as far as they still exist; but it did not record the program's events.
    if (undone) errors_.lost(result);
    each_record([&](auto index) {
      make_call(index, streams_.launch());
      return CUDA_SUCCESS;
    });
    progress_.by_calls();
  }
  if (result == CUDA_SUCCESS) result = mended;
  if (result == CUDA_SUCCESS && !refused_any) result = audit.keep(launch);
  standing_.keep_order(streams_.launched());
  if (result == CUDA_SUCCESS && !refused_any) return;
  audit.drop();
  standing_.stand_aside("the driver refused part of an audit (" + result_name(result) + ")");
}

}  // namespace nimble
