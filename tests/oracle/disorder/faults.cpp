// Which call of a program in disorder the driver refuses.
#include <cuda.h>

#include <algorithm>
#include <initializer_list>

#include "tests/oracle/disorder/changes.h"
#include "tests/oracle/program/contents.h"

namespace nimble::oracle {
namespace {

// Whether the salt is among its parameters, which distinguishes it from all other launches.
bool has_salt(Kernel kernel) {
  switch (kernel) {
    case Kernel::map1:
    case Kernel::map3:
    case Kernel::gather:
    case Kernel::in_place:
    case Kernel::fill:
    case Kernel::by_struct:
    case Kernel::backwards:
    case Kernel::sometimes:
    case Kernel::opaque_map:
    case Kernel::opaque_in_place:
      return true;
    default:
      return false;
  }
}

bool can_be_told(const std::vector<Op>& ops, const Op& op) {
  if (op.kind == OpKind::launch) return has_salt(op.kernel);
  if (op.kind != OpKind::copy && op.kind != OpKind::set) return false;
  return std::count_if(ops.begin(), ops.end(), [&](const Op& other) {
           return other.kind == op.kind && other.width * other.height == op.width * op.height;
         }) == 1;
}

// Whether all that it writes holds something before: then nothing that is not defined is read where it fails.
bool may_be_missing(const Script& script, const Fault& fault) {
  Contents contents(script.program.buffers);
  for (std::uint32_t step = 0; step < fault.step; ++step) {
    for (const Op& op : script.steps[step]) {
      if (op.kind == OpKind::keep) contents.bring(op.other);
      if (op.kind == OpKind::free && script.program.buffers[op.buffer].later) contents.leave(op.buffer);
    }
  }
  const std::vector<Op>& ops = script.steps[fault.step];
  for (std::uint32_t i = 0; i < fault.op; ++i) contents.apply(ops[i]);
  return std::all_of(ops[fault.op].ranges.begin(), ops[fault.op].ranges.end(), [&](const Range& range) {
    return !range.writes || contents.written(range.buffer, range.begin, range.end);
  });
}

bool can_fail(const Script& script, const Fault& fault) {
  const std::vector<Op>& ops = script.steps[fault.step];
  return can_be_told(ops, ops[fault.op]) && (fault.kind != FaultKind::refused || may_be_missing(script, fault));
}

}  // namespace

Fault choose_fault(const Script& script, Random& random) {
  Fault fault;
  const auto steps = static_cast<std::uint32_t>(script.steps.size());
  fault.kind = random.one_of({FaultKind::refused, FaultKind::refused, FaultKind::fatal, FaultKind::runs,
                              FaultKind::memory, FaultKind::own, FaultKind::own});
  if (fault.kind == FaultKind::own) {
    const auto has = [&](OpKind kind) {
      return std::any_of(script.steps.begin(), script.steps.end(), [&](const auto& ops) {
        return std::any_of(ops.begin(), ops.end(), [&](const Op& op) { return op.kind == kind; });
      });
    };
    if (has(OpKind::captured)) return {};
    fault.symbol = random.one_of({"cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags",
                                  "cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2",
                                  "cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams",
                                  "cuGraphExecEventRecordNodeSetEvent", "cuGraphLaunch", "cuMemAlloc_v2"});
    if (fault.symbol == "cuGraphLaunch" && !script.program.graph.empty()) return {};
    fault.result = random.one_of<int>({CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE});
    // An audit's memory; or the program's own, which retries when there is none.
    if (fault.symbol == "cuMemAlloc_v2") fault.result = CUDA_ERROR_OUT_OF_MEMORY;
    // What makes graphs is called in the second step, what launches and changes them in all that follow.
    const bool makes = fault.symbol.find("Exec") == std::string::npos && fault.symbol != "cuGraphLaunch";
    fault.step = makes ? random.below(2) : random.below(steps);
    fault.nth = random.between(1, 6);
    return fault;
  }
  for (int tries = 0; tries < 20; ++tries) {
    fault.step = random.below(steps);
    const std::vector<Op>& ops = script.steps[fault.step];
    if (ops.empty()) continue;
    fault.op = random.below(static_cast<std::uint32_t>(ops.size()));
    if (fault.kind == FaultKind::memory) {
      fault.result = CUDA_ERROR_OUT_OF_MEMORY;
      if (ops[fault.op].kind == OpKind::alloc) return fault;
      continue;
    }
    fault.result = fault.kind == FaultKind::refused
                       ? random.one_of<int>({CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE})
                       : random.one_of<int>({CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED});
    if (can_fail(script, fault)) return fault;
  }
  return {};
}

}  // namespace nimble::oracle
