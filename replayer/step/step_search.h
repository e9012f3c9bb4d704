// How near the program came to the schedule's step while no whole one has matched: for the user who asks why nothing
// was replayed.
//
// Not synchronised: the replayer's lock guards it. note() allocates nothing.
#pragma once

#include <cstdint>
#include <string>

#include "nimble/internal/schedule.h"

namespace nimble {

class StepSearch {
 public:
  // A step ended after this many of its `length` ops, since the next call was not the op `expected` (kNone: nothing
  // was, or the call is not known). `reason`: a text that lives forever. `byte`: of a launch's parameters, kNone for
  // elsewhere.
  void note(std::uint32_t ops, std::uint32_t length, std::uint32_t expected, const char* reason, std::uint32_t byte);
  // Why no whole step has matched, after a sentence that says so.
  std::string why(const Schedule& schedule) const;

 private:
  // Of the step that came furthest, the first of those.
  std::uint32_t ops_ = 0, length_ = 0, expected_ = kNone, byte_ = kNone;
  const char* reason_ = "";
};

}  // namespace nimble
