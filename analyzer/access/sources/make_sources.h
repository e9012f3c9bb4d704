// The sources of evidence, in order of strength: the one list of them. A source is a class derived from AccessSource
// (analyzer/access/access.h), in a file of this folder, and a line here.
#pragma once

#include <memory>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"
#include "analyzer/pointers/pointer_flow.h"
#include "analyzer/rules/rules.h"
#include "nimble/internal/evidence.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// All of them, as far as `trust` believes them. `seen` and `observed` may be null: nothing was seen then, or what was
// is not believed. What the references name must outlive the sources.
std::vector<std::unique_ptr<AccessSource>> make_sources(const Trace& trace, const Rules& rules, Evidence trust,
                                                        PointersInMemory& pointers, const Observations* seen,
                                                        std::unique_ptr<AccessSource> observed);

}  // namespace nimble::analyzer
