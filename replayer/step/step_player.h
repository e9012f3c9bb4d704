// Plays one schedule on the program's streams: the state machine that replayer.h describes, without the lock, the log,
// and the loading.
//
// Owns the parts, each with its own state, and dispatches the program's calls to them: ops to StepRun, which leads a
// step through the others; queries, releases, captures and ends to the parts that they concern. Not synchronised. Makes
// driver calls through DriverApi; makes the step's context current around those that may come from other threads.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "nimble/internal/step_paths.h"
#include "replayer/audit/step_audits.h"
#include "replayer/bind/arena.h"
#include "replayer/bind/step_memory.h"
#include "replayer/bystanders/bystanders.h"
#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/errors/step_errors.h"
#include "replayer/match/step_match.h"
#include "replayer/relaxed/step_onlookers.h"
#include "replayer/stats/counters.h"
#include "replayer/step/step_binding.h"
#include "replayer/step/step_run.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/submit/step_graphs.h"
#include "replayer/submit/submitter.h"
#include "replayer/tune/step_tuning.h"

namespace nimble {

class StepPlayer {
 public:
  StepPlayer(Schedule schedule, CallContext& context, const DriverApi& driver, Counters& counters);
  StepPlayer(const StepPlayer&) = delete;  // the parts refer to each other
  StepPlayer& operator=(const StepPlayer&) = delete;

  // The program's call, before the driver sees it. A value is the answer; nothing means: let the driver have it.
  Answer before(Call& call);
  // The driver has answered a call that passed.
  void after(const Call& call, CUresult result);
  // Like before(), once replay has stood aside: only memory that the plan served is still looked after.
  Answer before_aside(Call& call);
  // Memory came or went by a call that did not come through here.
  void note(const MemoryEvent& event);

  // Audits every `every`th step from now on. `elsewhere` tells how many ops passed that did not concern the player.
  void audit(std::optional<std::uint32_t> every, std::function<std::uint64_t()> elsewhere) {
    audits_.start(every, std::move(elsewhere));
  }
  // From now on times the ways of submitting, and uses the fastest.
  void tune(Tune when) {
    tuning_.start(when, schedule_, [this](std::uint32_t kind) { return match_.cursor().goes_on(kind); });
  }
  const StepTuning& tuning() const { return tuning_; }
  // Observers of the step's memory from elsewhere.
  StepOnlookers& onlookers() { return onlookers_; }
  // From now on graphs keep the program's order.
  void keep_program_order() { run_.keep_program_order(); }

  // Submits held ops, in program order. Errors of the driver are deferred, and replay stands aside.
  void flush() { submitter_.flush(); }
  // Submits held ops, releases the streams, and the arena if it can: for good.
  void leave();
  // The program ends: leaves, and judges outstanding audits, waiting for a while at most.
  void finish() {
    leave();
    audits_.finish();
  }
  // Releases the arena to the pool, if possible. Whether it did.
  bool give_arena_back() { return arena_.give_back(); }
  // Memory is short: submits held ops, and binds anew when the step comes again. Whether anything was released. Not for
  // a program that is capturing. `going`: the outcome for the arena; without an event if it stays.
  bool let_go_of_memory(GoingArena& going);
  // The program's calls no longer come here, not even the end of a stream: destroys the graphs.
  void retire() {
    binding_.retire();
    onlookers_.detach();
  }

  // A call has failed with an error that destroys its context.
  void context_failed(CUresult error);
  // A context has ended, as the driver has confirmed.
  void context_gone(const Call& call) {
    errors_.context_gone(call);
    arena_.context_gone(call);
  }
  // Deferred errors of held ops.
  StepErrors& errors() { return errors_; }

  // Whether replay goes on, and messages for the log.
  StandAside& standing() { return standing_; }
  const std::string& stood_aside() const { return standing_.why(); }
  // Why no whole step has matched, if none has. The program has ended.
  std::string why_not_found() { return run_.why_not_found(); }

  // The state by which other threads' calls are judged.
  Bystanders::State state() const {
    const bool follows = run_.begun() || bound();
    return {.streams = follows ? streams_.live() : std::span<const StreamRef>{},
            .version = follows ? streams_.version() : 0,
            .open = !follows || streams_.count() > 1,
            .holding = !submitter_.held().empty(),
            .capturing = captures_.any(),
            .arena = arena_.base(),
            .arena_bytes = arena_.bytes(),
            .closing = run_.closes(),
            .auditing = audits_.pending()};
  }
  const Schedule& schedule() const { return schedule_; }
  MemoryMap& memory() { return memory_.map(); }
  // Progress: a step is bound; or one is being matched, or has matched and will be bound.
  bool bound() const { return binding_.bound(); }
  bool matching() const { return run_.begun() || binding_.is_due(); }
  // Whether something here still needs the player: the program's memory, deferred errors, a capture under way.
  bool indispensable() const { return arena_.is_in_use() || errors_.any() || captures_.any(); }
  // 0 while nothing is held; otherwise a number that changes exactly with every held op.
  std::uint64_t holding() const { return submitter_.held().holding(); }

 private:
  Answer refuse(const Call& call) const;
  Answer play(Call& call);
  Answer on_question(Call& call);
  void on_end(const Call& call);
  void answered(const Call& call, CUresult result);
  void capture_begins(const StreamRef& stream);
  void stream_ends(std::uint32_t stream);
  void event_ends(CUevent event);
  void context_ends(const Call& call);

  const Schedule schedule_;
  const StepPaths paths_;
  Captures captures_;
  StandAside standing_;
  StepStreams streams_;  // of the current step; of all steps once bound
  StepErrors errors_;
  StepMemory memory_;
  Arena arena_;
  StepMatch match_;
  StepTuning tuning_;
  StepAudits audits_;
  StepGraphs graphs_;
  StepOnlookers onlookers_;
  Submitter submitter_;
  StepBinding binding_;
  StepRun run_;
  bool left_ = false;  // the streams have been released
};

}  // namespace nimble
