// What a kernel's parameters must hold for each of its instructions to run, as far as branches tell.
//
// A library has one kernel for a factor that is passed by value and for one that is in memory, and branches by a flag
// that comes with it: what would be the address is then never used, and may be anything. This is all of control flow
// that is read: tests of a parameter for one number, and what only one branch leads to. If it cannot be told, there is
// no condition. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analyzer/kernel_code/ptx/body.h"

namespace nimble::code {

// The number of so many bytes at this byte of the packed parameters is `value`, or is not.
struct PtxCondition {
  std::uint32_t at = 0, bytes = 0;  // 1, 2, 4 or 8 bytes
  std::uint64_t value = 0;
  bool equal = true;
  bool operator==(const PtxCondition&) const = default;
};

using PtxConditions = std::vector<PtxCondition>;  // all of them hold

struct PtxGuards {
  std::vector<PtxConditions> sets{{}};  // the first is empty
  std::vector<std::uint32_t> of;        // by instruction: one of the sets
};

// `definition`: for registers and predicates that only one instruction writes. `parameter`: where in the packed
// parameters an operand of `ld.param` is, if it is always there and so many bytes are inside.
PtxGuards ptx_guards(const PtxBody& body, const std::unordered_map<std::uint32_t, const PtxInstruction*>& definition,
                     const std::function<std::optional<std::uint32_t>(const PtxOperand&, std::uint32_t)>& parameter);

}  // namespace nimble::code
