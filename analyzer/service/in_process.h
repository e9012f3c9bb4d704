// What analyses within the program's process have in common. Pure; any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "analyzer/analysis.h"
#include "analyzer/input/trace_store.h"
#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/evidence.h"

namespace nimble::shim {

inline constexpr const char* kTraceName = "NIMBLE_MODE=auto";  // stands for the file in errors

// What nimble-analyze uses by default, with this trust. Throws InputError for rules that cannot be read.
analyzer::AnalysisOptions analysis_options(analyzer::KeptRules& rules, Evidence trust);

// For the log, if the schedule's order rests on beliefs: which ones, and how to do without. Else empty.
std::string beliefs_for_log(const analyzer::Analysis& analysis);

// Reads `text`, which it keeps as long as it exists.
std::function<std::size_t(char* buffer, std::size_t size)> source_of(TraceStore::Text text);

// Why an op of the step cannot be part of one graph that holds all of them; empty if all can. An op that could be, had
// others not left it alone, is only named if there is no other reason.
std::string why_not_one_graph(const analyzer::StepAnalysis& analysis);

}  // namespace nimble::shim
