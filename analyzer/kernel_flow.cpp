#include "analyzer/kernel_flow.h"

#include <algorithm>

#include "analyzer/objects.h"
#include "analyzer/signature.h"

namespace nimble::analyzer {
namespace {

constexpr PointerFlow kAnything{true, true, true, true};

PointerFlow flow_of(const ParamType& type) {
  PointerFlow flow = kAnything;  // its own value may be stored, whatever its type
  switch (type.kind) {
    case ParamKind::reads:
    case ParamKind::writes:
      flow.from = type.pointee != Pointee::fractions;
      flow.keeps = false;
      flow.to = flow.from && type.kind == ParamKind::writes;
      break;
    case ParamKind::table:
    case ParamKind::any:
      flow.keeps = flow.to = !type.is_const;
      break;
    case ParamKind::aggregate:
      if (!type.array_of_numbers) break;
      flow.from = flow.to = type.pointee != Pointee::fractions;
      flow.keeps = false;
      break;
    case ParamKind::value:  // may be an address that was turned into a number
    case ParamKind::unknown:
      break;
  }
  return flow;
}

}  // namespace

bool KernelFlows::judge_types(const TraceFunction& function, Known& result) const {
  const auto types = parameter_types(demangle(function.name));
  if (!types || !function.params || types->size() != function.params->size()) return false;
  for (std::size_t i = 0; i < types->size(); ++i) {
    const ParamLayout& param = (*function.params)[i];
    const ParamType type = classify((*types)[i]);
    if (type.size != 0 && type.size != param.size) return false;
    result.parts.push_back({param.offset, param.offset + param.size, flow_of(type)});
  }
  return true;
}

void KernelFlows::judge(const TraceFunction& function, Known& result) const {
  if (function.proof && function.proof->same_code) {
    Known typed;
    const bool has_types = judge_types(function, typed);
    for (const ProvenAccess& access : function.proof->accesses)
      for (const std::uint32_t at : access.at) {
        PointerFlow flow{false, access.writes, access.reads, access.writes};
        if (has_types)
          for (const Part& part : typed.parts)
            if (at >= part.begin && at < part.end) {
              flow.keeps &= part.flow.keeps;
              flow.from &= part.flow.from;
              flow.to &= part.flow.to;
            }
        result.parts.push_back({at, at + 8, flow});
      }
    for (const std::uint32_t at : function.proof->stored)
      result.parts.push_back({at, at + 8, {true, false, false, false}});
    for (std::uint32_t i = 0; i < function.proof->globals.size(); ++i) {
      const ProvenGlobal& global = function.proof->globals[i];
      result.parts.push_back({kAtGlobals + i, kAtGlobals + i + 1, {false, global.writes, global.reads, global.writes}});
    }
    return;
  }
  const Rule* rule =
      function.params ? rules_.find(function.name, demangle(function.name), function.params->size()) : nullptr;
  if (rule != nullptr) {
    // It stores pointers only where it says that it fills a table.
    const bool fills = std::find(rule->params.begin(), rule->params.end(), RuleParam::table_out) != rule->params.end();
    for (std::size_t i = 0; i < function.params->size(); ++i) {
      const RuleParam word = rule->params[i];
      PointerFlow flow;
      flow.keeps = word == RuleParam::table_out;
      flow.is_stored = fills && word != RuleParam::value && !flow.keeps;
      flow.from = word != RuleParam::value && word != RuleParam::out && !flow.keeps;
      flow.to = word == RuleParam::out || word == RuleParam::inout || flow.keeps;
      const ParamLayout& param = (*function.params)[i];
      result.parts.push_back({param.offset, param.offset + param.size, flow});
    }
    return;
  }
  result.leaks = !function.self_contained;
  if (!judge_types(function, result)) result.otherwise = kAnything;
}

const KernelFlows::Known& KernelFlows::known(std::uint32_t function) {
  Known& result = known_[function];
  if (!result.asked) {
    result.asked = true;
    judge(trace_.functions[function], result);
  }
  return result;
}

PointerFlow KernelFlows::of(std::uint32_t function, std::uint32_t at) {
  const Known& all = known(function);
  PointerFlow flow = all.otherwise;
  for (const Part& part : all.parts) {
    if (at < part.begin || at >= part.end) continue;
    flow.is_stored |= part.flow.is_stored;
    flow.keeps |= part.flow.keeps;
    flow.from |= part.flow.from;
    flow.to |= part.flow.to;
  }
  return flow;
}

bool KernelFlows::leaks(std::uint32_t function) { return known(function).leaks; }

}  // namespace nimble::analyzer
