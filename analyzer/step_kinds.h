// Finds the other kinds of step that a program has beside the one that it repeats most: an evaluation every so often, a
// batch of another size.
//
// What lies between two steps is such a kind where it comes again and again, alone or several times in a row. Kinds are
// told apart by the signatures of their ops, as in step_finder.h; there are kMaxKinds at most with the first, those
// that explain the most work. What is left over are extras, as before.
//
// Pure; any thread. Time is near linear in ops. No errors.
#pragma once

#include <vector>

#include "analyzer/step_finder.h"

namespace nimble::analyzer {

// Less of the work that the first kind does is not worth a schedule.
inline constexpr double kLeastWorkOfKind = 0.02;

// The other kinds, the most work first. `step` is the first kind, as found.
std::vector<Step> find_other_kinds(const Trace& trace, const ObjectTable& objects, const Step& step);

}  // namespace nimble::analyzer
