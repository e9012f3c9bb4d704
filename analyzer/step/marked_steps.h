// Steps that the program has marked itself, by the C API (include/nimble/nimble.h).
//
// A step runs from a mark where one begins to the next mark of the same thread. If several threads mark, the one that
// marks most often is believed. Among steps with different names or ops, the kind that comes most often is the step;
// among equals the one with the most ops. What is between steps, or in steps of another kind, is extras, among which
// step_variants.h looks for more. Pure functions; any thread. No errors: a trace without marks, or without ops between
// them, has no marked step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {

struct MarkedSteps {
  std::string name;                   // as the program gave it; may be empty
  std::uint32_t ops = 0;              // in each
  std::vector<std::uint32_t> begins;  // indices into the ops; ascending, without overlap
  std::uint32_t marked = 0;           // steps with ops of any kind
};

// `ops` are indices into Trace::calls, ascending; `signatures` are theirs.
std::optional<MarkedSteps> find_marked_steps(const Trace& trace, std::span<const std::uint32_t> ops,
                                             std::span<const std::uint64_t> signatures);

}  // namespace nimble::analyzer
