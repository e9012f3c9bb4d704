// Whether a schedule's step is bound, with its graphs and arena, until code, a stream or the context end.
//
// A whole step that has matched tells functions and addresses; the step is bound before the next one begins. Not
// synchronised: the replayer's lock guards it. On errors replay stands aside, with a reason.
#pragma once

#include <cstdint>

#include "nimble/internal/schedule.h"
#include "nimble/internal/step_paths.h"
#include "replayer/bind/arena.h"
#include "replayer/bind/step_memory.h"
#include "replayer/driver/driver_api.h"
#include "replayer/match/op_match.h"
#include "replayer/step_order/step_streams.h"
#include "replayer/submit/step_graphs.h"
#include "replayer/tune/step_tuning.h"

namespace nimble {

class StepBinding {
 public:
  // All must outlive it.
  StepBinding(const Schedule& schedule, const StepPaths& paths, const DriverApi& driver, const StepMemory& memory,
              OpMatch& live, Arena& arena, const StepStreams& streams, StepGraphs& graphs, StepTuning& tuning)
      : schedule_(schedule),
        paths_(paths),
        driver_(driver),
        memory_(memory),
        live_(live),
        arena_(arena),
        streams_(streams),
        graphs_(graphs),
        tuning_(tuning) {}

  bool bound() const { return bound_; }

  // A whole step of this kind has matched, but could not be replayed, since the kind is not bound: binding is due.
  void note(std::uint32_t kind) { due_ = kind; }
  // Drops the note: a later step will tell anew.
  void forget_due() { due_ = kNone; }
  bool is_due() const { return due_ != kNone; }
  // Builds missing graphs and the arena for the kind that is due. If that is not possible yet, the next whole step
  // tells anew.
  void bind() {
    if (can_bind(due_)) build(due_);
    due_ = kNone;
  }
  // Destroys the graphs and releases the launch stream. Nothing must be held.
  void unbind();
  // Destroys the graphs; no more calls come.
  void retire() {
    graphs_.drop();
    bound_ = false;
  }

 private:
  bool can_bind(std::uint32_t kind) const;
  void build(std::uint32_t kind);

  const Schedule& schedule_;
  const StepPaths& paths_;
  const DriverApi& driver_;
  const StepMemory& memory_;
  OpMatch& live_;
  Arena& arena_;
  const StepStreams& streams_;
  StepGraphs& graphs_;
  StepTuning& tuning_;
  bool bound_ = false;
  std::uint32_t due_ = kNone;
};

}  // namespace nimble
