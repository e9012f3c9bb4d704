// Finds other kinds of step that a program has besides the one that it repeats most: an evaluation every so often, a
// batch of another size.
//
// What comes between two steps is such a kind if it comes again and again, alone or several times in a row. Kinds are
// told apart by the signatures of their ops, as in step_finder.h; there are at most kMaxKinds including the first,
// those that explain the most work. What is left over are extras.
//
// Pure; any thread. Time is near linear in ops. No errors.
#pragma once

#include <vector>

#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

// A kind with less than this share of the first kind's work is not worth a schedule.
inline constexpr double kLeastWorkOfKind = 0.02;

// All kinds: the first, as find_step() finds it, and the others, the most work first. If no kind makes up much of the
// trace by itself, but several do together, the first is the one that does the most. Never empty: if there is no step,
// the first one says why.
std::vector<Step> find_kinds(const Trace& trace, const ObjectTable& objects);

}  // namespace nimble::analyzer
