#include "analyzer/report/kernels.h"

#include <algorithm>
#include <tuple>

#include "analyzer/memory/step_objects.h"
#include "analyzer/stages/find_accesses.h"

namespace nimble::analyzer {
namespace {

void add_launch(const TraceCall& call, const OpAccesses& known, const StepAccesses& accesses, std::uint32_t op,
                KernelUse& use) {
  ++use.launches;
  if (call.device_duration_us >= 0) {
    ++use.timed;
    use.gpu_us += call.device_duration_us;
  }
  ++use.known[static_cast<std::size_t>(known.evidence)];
  if (known.role != OpRole::accesses) {
    if (known.why != kNone) ++use.why[accesses.reasons[known.why]];
    return;
  }
  std::map<std::uint32_t, KernelUse::Word> words;  // several accesses may be by one word
  for (const Access& access : accesses.of(op)) {
    KernelUse::Word& word = words[access.at];
    if (access.by_chance) {
      word.by_chance = 1;
      continue;
    }
    word.reads |= access.reads ? 1 : 0;
    word.writes |= access.writes ? 1 : 0;
  }
  for (const auto& [at, word] : words) {
    KernelUse::Word& all = use.words[at];
    all.reads += word.reads;
    all.writes += word.writes;
    all.by_chance += word.by_chance;
  }
}

void describe(const TraceFunction& function, KernelUse& use) {
  if (use.params.empty() && function.params) use.params = *function.params;
  if (!use.variables.empty() || !function.proof) return;
  for (const ProvenGlobal& global : function.proof->globals) use.variables.push_back(global.name);
}

}  // namespace

KernelUses kernel_uses(const Recording& recording, const AnalysisOptions& options) {
  const Trace& trace = recording.trace();
  KernelUses result;
  std::vector<std::uint32_t> ops;
  for (std::uint32_t i = 0; i < trace.calls.size(); ++i)
    if (is_op(trace.calls[i].kind) && trace.calls[i].result == 0) ops.push_back(i);
  const StepObjects objects = objects_of_step(trace, *recording.table, ops);
  const StepAccesses accesses = accesses_of(trace, *recording.table, objects, ops, options);
  std::map<std::string, KernelUse> by_name;  // a kernel may have been loaded several times
  for (std::uint32_t op = 0; op < ops.size(); ++op) {
    const TraceCall& call = trace.calls[ops[op]];
    result.graph_launches += call.kind == CallKind::graph_launch ? 1 : 0;
    if (call.kind != CallKind::launch) continue;
    const TraceFunction& function = trace.functions[call.function];
    KernelUse& use = by_name[function.name];
    use.name = function.name;
    describe(function, use);
    add_launch(call, accesses.ops[op], accesses, op, use);
  }
  for (auto& [name, use] : by_name) result.kernels.push_back(std::move(use));
  std::ranges::stable_sort(result.kernels, [](const KernelUse& a, const KernelUse& b) {
    return std::tie(a.gpu_us, a.launches) > std::tie(b.gpu_us, b.launches);
  });
  return result;
}

}  // namespace nimble::analyzer
