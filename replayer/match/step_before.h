// Whether a step may rely on the pointers that the previous step has left in memory, as in the schedule.
//
// It may if that step was as recorded, from its first op to its last, and nothing else has put pointers into memory
// since. Not synchronised: the replayer's lock guards it.
#pragma once

#include "nimble/internal/schedule.h"

namespace nimble {

class StepBefore {
 public:
  explicit StepBefore(const Schedule& schedule)
      : carries_(schedule.carries), rests_on_pointers_(schedule.rests_on_pointers()) {}

  // A step begins: whether it finds what its schedule relies on.
  bool begin_step() {
    const bool finds = !carries_ || (as_recorded_ && !disturbed_);
    as_recorded_ = disturbed_ = false;
    return finds;
  }
  // It was as recorded, to its last op; or the driver has refused that one.
  void end_step() { as_recorded_ = true; }
  void refuse_last() { as_recorded_ = false; }
  // Something else may have put pointers into memory. Whether the rest of the step may follow them.
  bool disturb() {
    disturbed_ = true;
    return rests_on_pointers_;
  }

 private:
  const bool carries_, rests_on_pointers_;
  bool as_recorded_ = false;
  bool disturbed_ = false;  // since it began
};

}  // namespace nimble
