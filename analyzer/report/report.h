// The report that nimble-analyze prints, as text and as JSON.
//
// Pure functions over an immutable Analysis; any thread. What the device model says is labelled as predicted. No
// errors: a trace without a step, or a step without a schedule, gives a report that says so.
#pragma once

#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

std::string text_report(const Analysis& analysis);

// One JSON object; docs/reference/nimble-analyze.md lists its keys.
std::string json_report(const Analysis& analysis);

}  // namespace nimble::analyzer
