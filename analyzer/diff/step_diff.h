// What is different between the steps of two traces: figures, ops, order, memory.
//
// Ops are the same if they are called the same: kind, kernel, number of blocks, or bytes that are copied. Pure
// functions over immutable analyses; any thread. Times in microseconds. No errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analyzer/analysis.h"
#include "analyzer/ledger/ledger.h"
#include "nimble/internal/device_model.h"

namespace nimble::analyzer {

// One figure of both; negative: not known of that one.
struct FigureDiff {
  enum class Unit : std::uint8_t { number, us, bytes };
  std::string name;
  double first = -1, second = -1;
  Unit unit = Unit::number;
};

// Ops of one name.
struct OpsDiff {
  std::string name;
  std::uint32_t ops[2] = {0, 0};
  double gpu_us[2] = {0, 0};  // measured, or predicted if not
};

// A dependency between two ops that both steps have, which only one of the steps has.
struct OrderDiff {
  bool in_first = false;
  std::uint32_t from = 0, to = 0;  // in that step
  const Dependency* dependency = nullptr;
};

struct StepDiff {
  std::vector<FigureDiff> figures;
  std::uint32_t same = 0;  // ops that both have, in the same order
  bool is_aligned = true;  // false: too different; then only ops before the first difference and after the last count
  std::uint32_t only[2] = {0, 0};
  std::vector<OpsDiff> ops;  // names with different counts or times; largest difference in time first
  std::vector<OrderDiff> order;
};

StepDiff diff_steps(const StepAnalysis& first, const StepAnalysis& second, const DeviceModel& device);

// For a terminal: at most `most` lines of each list.
std::string diff_text(const StepAnalysis& first, const StepAnalysis& second, const StepDiff& diff, std::size_t most);
// One JSON object; docs/reference/nimble-analyze.md lists its keys.
std::string diff_json(const StepAnalysis& first, const StepAnalysis& second, const StepDiff& diff);

}  // namespace nimble::analyzer
