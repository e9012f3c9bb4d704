#include "analyzer/check/range_ends.h"
#include "analyzer/base/demangle.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "analyzer/pointers/parameter_types.h"
#include "analyzer/report/describe.h"

namespace nimble::shim {

namespace {

using analyzer::Object;
using analyzer::PointerWord;

// The type of the parameter that is this word and nothing else; nothing if there is none, or its type is not known.
std::optional<std::string> type_of(const TraceFunction& function, const std::vector<std::string>& types,
                                   std::uint32_t at) {
  if (!function.params || function.params->size() != types.size()) return std::nullopt;
  for (std::size_t i = 0; i < types.size(); ++i)
    if ((*function.params)[i].offset == at && (*function.params)[i].size == 8) return types[i];
  return std::nullopt;
}

// Whether the rule says that this word is followed. A rule that lets a parameter be scanned says nothing about its
// words.
bool followed_by_rule(const analyzer::Rule* rule, const TraceFunction& function, std::uint32_t at) {
  if (!rule) return false;
  for (std::size_t i = 0; i < function.params->size(); ++i) {
    const ParamLayout& layout = (*function.params)[i];
    if (at < layout.offset || at >= layout.offset + layout.size) continue;
    const analyzer::RuleParam& param = rule->param(i);
    return param.mode != analyzer::RuleMode::scan &&
           std::none_of(param.words.begin(), param.words.end(),
                        [](const auto& words) { return words.mode == analyzer::RuleMode::scan; });
  }
  return false;
}

// Whether both would be adjacent again where the region has them.
bool stay_together(const analyzer::StepAnalysis& step, std::uint32_t first, std::uint32_t second) {
  const auto& objects = step.objects.objects;
  if (first == kNone || second == kNone) return true;  // the step does not name it
  if (!objects[first].step_local && !objects[second].step_local) return true;
  return objects[first].step_local && objects[second].step_local &&
         step.plan.memory.offset[first] + objects[first].size == step.plan.memory.offset[second];
}

}  // namespace

std::string doubtful_end(const analyzer::StepAnalysis& step, const analyzer::Rules& rules) {
  const Trace& trace = step.input.trace();
  const std::vector<Object>& objects = step.input.table->objects();
  const auto calls = step.step.calls();
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const TraceCall& call = trace.calls[calls[op]];
    if (call.kind != CallKind::launch || step.evidence.accesses.ops[op].from_code) continue;
    const TraceFunction& function = trace.functions[call.function];
    if (!function.params) continue;  // a barrier: regions that move memory have none
    std::optional<std::vector<std::string>> types;
    for (const PointerWord& end : step.input.table->pointers(calls[op])) {
      if (end.at >= analyzer::kAtGlobals || end.offset != 0) continue;
      const Object& second = objects[end.object];
      for (const PointerWord& begin : step.input.table->pointers(calls[op])) {
        const Object& first = objects[begin.object];
        if (begin.at >= analyzer::kAtGlobals || first.base + first.size != second.base) continue;
        if (stay_together(step, step.objects.find(begin.object), step.objects.find(end.object))) continue;
        const std::string name = analyzer::demangle(function.name);
        if (followed_by_rule(rules.find(function.name, name, *function.params), function, end.at)) continue;
        if (!types) types = analyzer::parameter_types(name).value_or(std::vector<std::string>());
        const auto one = type_of(function, *types, begin.at), other = type_of(function, *types, end.at);
        if (one && other && *one != *other) continue;
        return "op " + std::to_string(op) + " (" + analyzer::describe_op(step, op, 100) + "): byte " +
               std::to_string(end.at) +
               " of its parameters may be the end of one allocation or the beginning of another, and the region moves "
               "it";
      }
    }
  }
  return {};
}

}  // namespace nimble::shim
