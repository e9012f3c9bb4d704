// Evidence `observed`: what a launch was seen to write in the recorded steps, it writes; what it was not, it reads.
//
// It speaks only where memory was compared before and after the launch in at least two steps, or two other launches
// that differ from it in nothing but the values of pointers; all objects that it names in each of them, and where its
// parameters are the only way by which it reaches memory. Observation gives direction, not extent: objects count as a
// whole. Pointers may lead to other objects in every step, so what was seen counts for the word of the parameters
// through which it was seen; and what a kernel was seen to write through a word in one of its launches, it writes
// through that word in all.
//
// Nor does anything tell whether the kernel follows pointers in memory: all that can be reached from what it names is
// taken to be read and written (analyzer/pointers/pointer_flow.h).
//
// A store of what was there already is not seen. Several steps with different data make that unlikely, no more: hence
// this is the weakest evidence, and it can be left out (--trust). Of a kernel that was not seen to write anything it
// says nothing. What it says holds for just the code that ran.
//
// Refers to the trace, its objects, the step and the observations, which must outlive it. One thread. `held` may be
// null where nobody will believe what it says.
#pragma once

#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"
#include "analyzer/pointers/pointer_flow.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

class ObservedAccess : public AccessSource {
 public:
  ObservedAccess(const Trace& trace, const ObjectTable& table, const Step& step, const Observations& seen,
                 HeldPointers* held);

  Evidence evidence() const override { return Evidence::observed; }
  std::string basis(const OpQuestion&) override { return "what it was seen to write"; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;

 private:
  std::vector<std::uint32_t> launches_to_look_at(const OpQuestion& op) const;

  const ObjectTable& table_;
  const Step& step_;
  const Observations& seen_;
  HeldPointers* held_;
  std::string hidden_;  // what was created, by which kernels may reach unnamed memory
};

}  // namespace nimble::analyzer
