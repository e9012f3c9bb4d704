// Submits a step's held ops: a segment as a graph once all of its ops have come, call by call if they must not be held
// any longer, and both in an audit.
//
// Owns the held ops and the current step's progress. Makes the step's context current for its calls, which may come
// from other threads. Not synchronised: the replayer's lock guards it. Driver errors are deferred to the program's
// later calls, and replay stands aside.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/audit/step_audits.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/step_errors.h"
#include "replayer/match/step_match.h"
#include "replayer/relaxed/step_onlookers.h"
#include "replayer/stats/counters.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/submit/held_ops.h"
#include "replayer/submit/step_graphs.h"
#include "replayer/submit/step_progress.h"

namespace nimble {

class Submitter {
 public:
  // What it works with. All must outlive it.
  struct Uses {
    const Schedule& schedule;
    const StepPaths& paths;
    CallContext& context;
    const DriverApi& driver;
    StepMatch& match;
    StepStreams& streams;
    StepGraphs& graphs;
    StepAudits& audits;
    StepOnlookers& onlookers;
    StepErrors& errors;
    StandAside& standing;
    Counters& counters;
  };
  explicit Submitter(const Uses& uses);

  HeldOps& held() { return held_; }
  const HeldOps& held() const { return held_; }
  StepProgress& progress() { return progress_; }
  const StepProgress& progress() const { return progress_; }

  // Submits the segments whose ops have all come.
  void submit_ready() {
    while (progress_.is_ready(cursor_.frontier()) && !standing_.aside()) {
      const std::uint32_t segment = progress_.take_segment();
      if (!held_.empty() && !progress_.passes(segment)) submit(segment);
    }
  }
  // Submits held ops, in program order, since the program might notice; or for another reason.
  void flush_early();
  void flush();
  // The driver is about to get an individual op on this stream of the schedule.
  void individually(std::uint32_t stream) { standing_.keep_order(streams_.individually(stream)); }

 private:
  void submit(std::uint32_t segment);
  void submit_audited(std::uint32_t segment, Audit& audit, const std::optional<Onlookers::Launch>& unseen);
  // The result of the first call that failed, if any did; all errors are deferred.
  CUresult submit_by_calls(const std::vector<std::uint32_t>& ops, bool on_launch_stream);
  CUresult make_call(std::uint32_t index, const StreamRef& stream);
  // `refused`: the op whose node the driver refused to change.
  CUresult patch_changed(std::uint32_t segment, std::uint32_t& refused);

  const Schedule& schedule_;
  const DriverApi& driver_;
  const StepCursor& cursor_;
  OpMatch& live_;
  StepStreams& streams_;
  StepGraphs& graphs_;
  StepAudits& audits_;
  StepOnlookers& onlookers_;
  StepErrors& errors_;
  StandAside& standing_;
  Counters& counters_;
  HeldOps held_;
  StepProgress progress_;
  std::vector<void*> scratch_;  // of submit_call()
};

}  // namespace nimble
