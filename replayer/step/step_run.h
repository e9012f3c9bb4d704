// Leads one step through the other parts: matches each op of the program against the schedule, and holds it, serves it
// from the plan, or passes it; tells the parts when a step begins, ends or diverges.
//
// Owns only the state that connects a step with the previous and the next one. Not synchronised: the replayer's lock
// guards it. Allocates nothing while steps match. On errors replay stands aside.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/audit/step_audits.h"
#include "replayer/bind/arena.h"
#include "replayer/bind/step_memory.h"
#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/errors/step_errors.h"
#include "replayer/match/step_before.h"
#include "replayer/match/step_match.h"
#include "replayer/relaxed/step_onlookers.h"
#include "replayer/stats/counters.h"
#include "replayer/step/step_binding.h"
#include "replayer/step/step_search.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/submit/submitter.h"
#include "replayer/tune/step_tuning.h"

namespace nimble {

class StepRun {
 public:
  // The parts. All must outlive it.
  struct Uses {
    const Schedule& schedule;
    const DriverApi& driver;
    const Captures& captures;
    StepStreams& streams;
    StepMemory& memory;
    Arena& arena;
    StepMatch& match;
    StepTuning& tuning;
    StepAudits& audits;
    StepGraphs& graphs;
    StepOnlookers& onlookers;
    Submitter& submitter;
    StepBinding& binding;
    StepErrors& errors;
    StandAside& standing;
    Counters& counters;
  };
  explicit StepRun(const Uses& uses);

  // The program's op, before the driver sees it. A value is the answer; nothing means: let the driver have it.
  Answer on_op(Call& call);
  // The driver has answered an op, or has refused another call.
  void answered(const Call& call, CUresult result);
  // The program releases memory, with what else begins in so many bytes.
  Answer release(const Call& call, std::uint64_t size);

  // Whether the op goes into a graph that the program is capturing: then it does nothing now.
  bool is_captured(const Call& call) const { return captures_.takes(call, driver_.cuStreamIsCapturing_); }
  // Why no whole step has matched, if none has. The program has ended.
  std::string why_not_found();
  // Whether some op of the step has come, and more are expected.
  bool begun() const { return cursor_.begun(); }
  // Whether the step's last op has passed, and the driver has not had it yet.
  bool closes() const { return last_due_; }
  // Stops a step that has begun.
  void stop(const char* why) {
    if (begun()) diverge(why);
  }
  // Destroys the graphs, since code or a stream ends. Submits held ops while their values are valid.
  void unbind(const char* why = "code or a stream went away");
  // From now on graphs keep the program's order.
  void keep_program_order();

 private:
  Answer begin_step(Call& call);
  void begin_matched_step();
  void choose_way();
  std::uint32_t next_op(std::uint32_t stream, const Call& call, const char*& reason);
  std::uint32_t op_that_begins_a_stream(const Call& call);
  void take_for(std::uint32_t kind);
  Answer on_matched(std::uint32_t index, Call& call);
  void serve(const ScheduleOp& op, Call& call);
  Answer let_pass(std::uint32_t index, Call& call, bool last);
  Answer outside(Call& call);
  void pass_rest();
  // `passes`: the driver has yet to get its last op.
  void end_step(bool passes, std::uint32_t thread);
  // `at_op`: the op that was expected where the reason was found.
  void diverge(const char* reason, std::uint32_t at_op = kNone);
  void tell_of_divergence(const char* reason, std::uint32_t at_op);

  const Schedule& schedule_;
  const DriverApi& driver_;
  const Captures& captures_;
  StepStreams& streams_;
  StepMemory& memory_;
  Arena& arena_;
  StepMatch& match_;
  StepCursor& cursor_;  // the match's
  StepTuning& tuning_;
  StepAudits& audits_;
  StepGraphs& graphs_;
  StepOnlookers& onlookers_;
  Submitter& submitter_;
  StepBinding& binding_;
  StepErrors& errors_;
  StandAside& standing_;
  Counters& counters_;
  StepBefore before_;
  StepSearch search_;
  bool last_due_ = false;          // see closes()
  std::uint32_t last_thread_ = 0;  // the thread of that op
};

}  // namespace nimble
