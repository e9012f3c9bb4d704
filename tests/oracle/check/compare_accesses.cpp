// What the analyzer infers of a recorded program's accesses, against what the simulated driver saw.
//
//   compare_accesses [--rules FILE] TRACE REPORT
//
// TRACE was recorded while the driver wrote REPORT: NIMBLE_MODE=record NIMBLE_TRACE=TRACE SIMCUDA_ACCESS=1
// SIMCUDA_REPORT=REPORT program. Prints how much wider the inferred accesses are, and what they miss. Exit status: 0
// nothing is missed, 1 something is, 2 bad usage or input.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "analyzer/pipeline.h"
#include "tests/oracle/check/compare.h"

using namespace nimble;

int main(int argc, char** argv) {
  std::vector<std::string> paths;
  analyzer::AnalysisOptions options;
  options.trust = Evidence::observed;  // all that can be believed is to be right
  try {
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--rules") == 0 && i + 1 < argc) {
        options.rules.read(argv[++i]);
      } else {
        paths.emplace_back(argv[i]);
      }
    }
    if (paths.size() != 2) {
      std::fprintf(stderr, "usage: compare_accesses [--rules FILE] TRACE REPORT\n");
      return 2;
    }
    const std::vector<analyzer::StepReading> readings = analyzer::read_steps(analyzer::read_trace(paths[0]), options);
    const analyzer::StepReading& step = readings.front();
    const oracle::Comparison comparison = oracle::compare(step, oracle::exact_of_report(paths[1]), options);
    if (step.step.period == 0) {
      std::printf("no step: all %zu ops\n", step.step.ops.size());
    } else {
      std::printf("%u ops in a step, %zu repeats\n", step.step.period, step.step.begins.size());
    }
    std::printf("%s", oracle::text_of(comparison).c_str());
    for (const std::string& failure : comparison.failures) std::printf("missed: %s\n", failure.c_str());
    return comparison.failures.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compare_accesses: %s\n", error.what());
    return 2;
  }
}
