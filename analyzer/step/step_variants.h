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

#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {

// Less of the work that the first kind does is not worth a schedule.
inline constexpr double kLeastWorkOfKind = 0.02;

// All kinds: the first, as find_step() has it, and the others, the most work first. Where no kind makes up much of the
// trace by itself, but several do together, the first is the one of them that does the most. Never empty: where there
// is none, the first one says why.
std::vector<Step> find_kinds(const Trace& trace, const ObjectTable& objects);

}  // namespace nimble::analyzer
