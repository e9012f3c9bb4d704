// Reads the trace that the user named, or else the one that was evidently meant.
//
// A recording that was interrupted, or that is still running, leaves its trace under another name, and so does one that
// found a foreign file in its place. What is read instead, and what there is besides, is said on standard error.
#pragma once

#include <string>

#include "analyzer/analysis.h"
#include "analyzer/input/trace_reader.h"

namespace nimble::analyzer {

// Throws InputError.
TraceFile read_recording(const std::string& path);

// The same, analyzed.
Analysis analyze_recording(const std::string& path, const AnalysisOptions& options);

}  // namespace nimble::analyzer
