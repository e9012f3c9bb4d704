// One schedule on the streams of the program that it is for: the state machine that replayer.h describes, without its
// lock, its log, and the loading.
//
// Owns the parts, each of which has its own state, and leads the program's calls to them: ops to StepRun, which leads
// one step through the others; what is asked, released, captured or brought to an end to whom it concerns. Not
// synchronised. Driver calls are made through DriverApi; the step's context is made current around those that may come
// from other threads.
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
#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/errors/step_errors.h"
#include "replayer/match/step_match.h"
#include "replayer/match/unrelated_calls.h"
#include "replayer/relaxed/step_onlookers.h"
#include "replayer/stats/counters.h"
#include "replayer/step_binding.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/step_run.h"
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

  // Audits every `every`th step from now on. `elsewhere` tells how many ops passed that were none of the player's
  // business.
  void audit(std::uint32_t every, std::function<std::uint64_t()> elsewhere) {
    audits_.start(every, std::move(elsewhere));
  }
  // Tries from now on which way of submitting is the fastest, and takes that.
  void tune(Tune when) {
    tuning_.start(when, schedule_, [this](std::uint32_t kind) { return match_.cursor().goes_on(kind); });
  }
  const StepTuning& tuning() const { return tuning_; }
  // Who looks at the step's memory from elsewhere.
  StepOnlookers& onlookers() { return onlookers_; }
  // From now on graphs keep the program's order.
  void keep_program_order() { run_.keep_program_order(); }

  // Submits what is held, in program order. What the driver refuses is owed to the program, and replay stands aside.
  void flush() { submitter_.flush(); }
  // Submits what is held, leaves the streams to themselves, and gives the arena back if it can: no one comes back for
  // any of them.
  void leave();
  // The program ends: leaves, and judges what is still to be judged, waiting for it for a while at most.
  void finish() {
    leave();
    audits_.finish();
  }
  // The arena goes back to the pool, if it can. Whether it went.
  bool give_arena_back() { return arena_.give_back(); }
  // Memory is short: what is held goes out, and the step binds anew when it comes again. Whether anything was let go
  // of. Not for a program that is capturing. `going`: what has become of the arena; without an event where it stays.
  bool let_go_of_memory(GoingArena& going);
  // Nothing of the program's comes here any more, not even the end of a stream: graphs go.
  void retire() {
    binding_.retire();
    onlookers_.detach();
  }

  // A call has failed with an error that its context does not survive.
  void context_failed(CUresult error);
  // A context has ended, as the driver has confirmed.
  void context_gone(const Call& call) {
    errors_.context_gone(call);
    arena_.context_gone(call);
  }
  // Errors of ops that were held, which the program has yet to be told of.
  StepErrors& errors() { return errors_; }

  // Whether replay goes on, and what there is to say to people.
  StandAside& standing() { return standing_; }
  const std::string& stood_aside() const { return standing_.why(); }

  // What calls of other threads are judged by.
  Bystanders::State state() const;
  const Schedule& schedule() const { return schedule_; }
  MemoryMap& memory() { return memory_.map(); }
  // How far it has come: a step is bound; or one is being matched, or has been, and will be.
  bool bound() const { return binding_.bound(); }
  bool matching() const { return run_.begun() || binding_.is_due(); }
  // Whether the program has something here that nobody else can look after: memory, errors, a capture that goes on.
  bool indispensable() const { return arena_.is_in_use() || errors_.any() || captures_.any(); }
  // 0 while nothing is held; otherwise a number that changes with every op that is held, and with nothing else.
  std::uint64_t holding() const { return submitter_.held().holding(); }

 private:
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
  StepStreams streams_;  // of the step at hand; of all steps once bound
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
  bool left_ = false;  // the streams are on their own
};

}  // namespace nimble
