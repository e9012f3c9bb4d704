// Evidence `observed`: what a launch was seen to write in the recorded steps, it writes; everything else it reads.
//
// It answers only if memory was compared before and after the launch in at least two steps, or in two other launches
// that differ from it only in the values of pointers; if all objects that it names were compared each time; and if it
// reaches memory by its parameters alone. Observation gives direction, not extent: objects count as a whole. Pointers
// may lead to other objects in every step, so what was seen counts for the word of the parameters that it was seen
// through; and what a kernel was seen to write through a word in one launch, it writes through that word in all.
//
// Nothing tells whether the kernel follows pointers in memory: all that can be reached from what it names is assumed to
// be read and written (analyzer/pointers/pointer_flow.h).
//
// A store of the value that was there already is not seen. Several steps with different data make that unlikely, no
// more: hence this is the weakest evidence, and it can be left out (--trust). It gives no answer for a kernel that was
// never seen to write. What it says holds only for the code that ran.
//
// Refers to the trace, its objects, the step and the observations, which must outlive it. One thread. `in_memory` may
// be null if what it says will not be believed.
#pragma once

#include <cstdint>
#include <span>
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
                 PointersInMemory* in_memory);

  Evidence evidence() const override { return Evidence::observed; }
  std::string basis(const OpQuestion&) override { return "what it was seen to write"; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;

 private:
  // What the launches that were compared tell about the words of a launch.
  struct Seen {
    std::vector<std::uint8_t> written;  // per word: whether its object was, in any of them
    std::uint32_t whole = 0;            // launches in which all was compared
    bool enough = false;                // as many as it takes, for each word
    bool followed_none = true;          // there were no pointers to follow
  };

  std::vector<std::uint32_t> launches_to_look_at(const OpQuestion& op) const;
  Seen look_at_launches(const OpQuestion& op, std::span<const PointerWord> pointers,
                        std::span<const std::uint32_t> past_ends) const;
  // Per word: whether the launch may write through it.
  std::vector<std::uint8_t> written_words(const OpQuestion& op, std::span<const PointerWord> pointers,
                                          const Seen& seen) const;
  // What it may reach over pointers in memory. False, with the reason, if that is not known.
  bool follow(const OpQuestion& op, std::span<const PointerWord> pointers, bool followed_none,
              std::vector<std::uint32_t>& reached, std::string& why_not) const;

  const ObjectTable& table_;
  const Step& step_;
  const Observations& seen_;
  PointersInMemory* in_memory_;
  std::string hidden_;  // what was created that lets kernels reach unnamed memory
};

}  // namespace nimble::analyzer
