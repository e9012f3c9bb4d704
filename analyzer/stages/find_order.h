// Stage "order": which ops of a step depend on which, and how many could run at once.
//
// Pure; any thread. No errors.
#pragma once

#include <memory>

#include "analyzer/graph/concurrency.h"
#include "analyzer/graph/dag.h"
#include "analyzer/options.h"
#include "analyzer/order/dependencies.h"
#include "analyzer/stages/read_steps.h"
#include "analyzer/step/happens_before.h"

namespace nimble::analyzer {

// Owns what it holds; immutable once built.
struct StepOrder {
  std::unique_ptr<const HappensBefore> program;  // the order that the program itself made
  Dependencies dependencies;
  Dag reduced;  // without the dependencies that others imply; over the whole step
  Concurrency concurrency;
};

StepOrder find_order(const StepReading& reading, const AnalysisOptions& options);

}  // namespace nimble::analyzer
