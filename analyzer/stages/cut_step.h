// Stage "segments": cuts a step into segments, one graph launch each, and finds out whether the streams that it uses
// can be served.
//
// Pure; any thread. No errors. Op numbers are indices into the step; times in microseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/options.h"
#include "analyzer/plan/multi_stream_check.h"
#include "analyzer/plan/segments.h"
#include "analyzer/stages/find_order.h"
#include "analyzer/stages/predict_times.h"
#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {

// Owns what it holds.
struct StepSegments {
  Segmentation segments;
  StreamsOfStep streams;
  double program_us = 0;              // predicted: the step as the program submits it
  std::vector<std::uint32_t> pauses;  // ops before which segments are cut because the host takes long to come to them
  std::uint32_t early_cuts = 0;       // cuts that are there only so that the GPU starts early
  double uncut_us = 0;                // predicted for the chosen policy without early cuts; 0 if there are none
};

// Cuts at pauses and, if the chosen policy is predicted to gain by it, so that the GPU starts early.
StepSegments cut_step(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                      const AnalysisOptions& options);

// Cuts before the ops `cuts` instead, and nowhere for speed. What `before`, the step's own cut, says about pauses and
// early cuts is kept.
StepSegments cut_step_at(const StepReading& reading, const StepOrder& order, const StepTimes& times,
                         const StepSegments& before, const std::vector<std::uint32_t>& cuts);

}  // namespace nimble::analyzer
