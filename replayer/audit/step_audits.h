// Decides when a step is audited, and acts on the outcome: how the current step is to run, how much work other streams
// have, and that replay stands aside if results differed.
//
// Owns the Audit; off until start(). Not synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/audit/audit.h"
#include "replayer/bind/object_map.h"
#include "replayer/driver/captures.h"
#include "replayer/driver/driver_api.h"
#include "replayer/errors/stand_aside.h"
#include "replayer/match/op_match.h"
#include "replayer/stats/counters.h"
#include "replayer/step_order/step_streams.h"

namespace nimble {

class StepAudits {
 public:
  // All must outlive it.
  StepAudits(const Schedule& schedule, const DriverApi& driver, const OpMatch& live, const ObjectMap& objects,
             const StepStreams& streams, const Captures& captures, StandAside& standing, Counters& counters)
      : schedule_(schedule),
        driver_(driver),
        live_(live),
        objects_(objects),
        streams_(streams),
        captures_(captures),
        standing_(standing),
        counters_(counters) {}

  // Every `every`th step from now on; nothing: steps 1, 2, 10, 100 and so on. `elsewhere` tells how many ops passed
  // that did not concern the player.
  void start(std::optional<std::uint32_t> every, std::function<std::uint64_t()> elsewhere) {
    elsewhere_ = std::move(elsewhere);
    audit_.emplace(schedule_, live_, objects_, driver_, counters_, every);
  }

  // A step begins. `serves`: it could run as a graph.
  void begin_step(bool serves) {
    if (audit_) run_ = audit_->begin_step(ops_elsewhere(), serves);
  }
  // How the current step is to run.
  Audit::Run run() const { return run_; }
  // Before the segment's graph is launched: the audit that it is run under, or null.
  Audit* save(std::uint32_t segment) {
    const bool audited = run_ == Audit::Run::audited;
    return audited && audit_->save(segment, streams_.launch().handle, ops_elsewhere()) ? &*audit_ : nullptr;
  }

  // An op is about to reach the driver on another stream: while memory may yet be restored, it waits.
  void elsewhere(const Call& call);
  // An audit is waiting to be judged.
  bool pending() const { return audit_ && audit_->pending(); }
  // Judges it, if the GPU is done.
  void judge();
  // The program ends: waits a while for that.
  void finish();
  // The context is gone.
  void abandon() {
    if (audit_) audit_->abandon();
  }

 private:
  std::uint64_t ops_elsewhere() const { return elsewhere_() + ops_elsewhere_; }

  const Schedule& schedule_;
  const DriverApi& driver_;
  const OpMatch& live_;
  const ObjectMap& objects_;
  const StepStreams& streams_;
  const Captures& captures_;
  StandAside& standing_;
  Counters& counters_;
  std::optional<Audit> audit_;
  Audit::Run run_ = Audit::Run::graphs;
  std::function<std::uint64_t()> elsewhere_;
  std::uint64_t ops_elsewhere_ = 0;  // of other streams that came through here
};

}  // namespace nimble
