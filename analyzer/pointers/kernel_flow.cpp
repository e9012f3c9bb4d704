#include "analyzer/pointers/kernel_flow.h"
#include "analyzer/base/demangle.h"

#include <algorithm>

#include "analyzer/memory/objects.h"
#include "analyzer/pointers/parameter_types.h"

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
    case ParamKind::value:  // may be an address that was converted to a number
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

// What the code does, as far as the types in the kernel's name allow it.
void KernelFlows::judge_proof(const TraceFunction& function, Known& result) const {
  Known typed;
  const bool has_types = judge_types(function, typed);
  const auto by_type = [&](std::uint32_t at) {
    for (const Part& part : typed.parts)
      if (has_types && at >= part.begin && at < part.end) return part.flow;
    return kAnything;
  };
  std::vector<std::uint32_t> told = function.proof->stored;
  for (const ProvenAccess& access : function.proof->accesses)
    for (const std::uint32_t at : access.at) {
      const PointerFlow type = by_type(at);
      result.parts.push_back(
          {at, at + 8, {false, access.writes && type.keeps, access.reads && type.from, access.writes && type.to}});
      told.push_back(at);
    }
  // What ran may do more with the words that another architecture's code says nothing about
  // (analyzer/access/sources/proven.h).
  if (!function.proof->same_code && function.params)
    for (const ParamLayout& param : *function.params)
      for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8)
        if (std::ranges::find(told, at) == told.end()) result.parts.push_back({at, at + 8, by_type(at)});
  for (const std::uint32_t at : function.proof->stored)
    result.parts.push_back({at, at + 8, {true, false, false, false}});
  for (std::uint32_t i = 0; i < function.proof->globals.size(); ++i) {
    const ProvenGlobal& global = function.proof->globals[i];
    result.parts.push_back({kAtGlobals + i, kAtGlobals + i + 1, {false, global.writes, global.reads, global.writes}});
  }
}

// The sources one after another, as the header ranks them.
void KernelFlows::judge(std::uint32_t index, Known& result) const {
  const TraceFunction& function = trace_.functions[index];
  // A proof that holds for some launches only is none here.
  const bool is_proven = function.proof && function.proof->extents.doubts.empty();
  if (is_proven && function.proof->same_code) return judge_proof(function, result);
  const Rule* rule = function.params ? rules_.find(function.name, demangle(function.name), *function.params) : nullptr;
  if (rule != nullptr && (!rule->self_contained || function.self_contained)) {
    // It only stores pointers if it says that it fills a table.
    const bool fills = std::any_of(rule->params.begin(), rule->params.end(),
                                   [](const RuleParam& param) { return param.mode == RuleMode::table_out; });
    // It does not say whether it moves addresses from what it reads to what it writes: it may, unless these are
    // numbers.
    const bool moves = !rule->moves_fractions(function.name, demangle(function.name));
    const auto flow_of = [&](RuleMode mode) {
      PointerFlow flow;
      flow.keeps = mode == RuleMode::table_out;
      flow.is_stored = fills && mode != RuleMode::value && !flow.keeps;
      flow.from = moves && mode != RuleMode::value && mode != RuleMode::out && !flow.keeps;
      flow.to = (moves && (mode == RuleMode::out || mode == RuleMode::inout || mode == RuleMode::scan)) || flow.keeps;
      return flow;
    };
    for (std::size_t i = 0; i < function.params->size(); ++i) {
      const RuleParam& param = rule->param(i);
      const ParamLayout& layout = (*function.params)[i];
      if (param.mode != RuleMode::words) {
        result.parts.push_back({layout.offset, layout.offset + layout.size, flow_of(param.mode)});
        continue;
      }
      // The launch tells how many words of a list are in use: up to the next list, or the end.
      for (const RuleWords& words : param.words) {
        std::uint32_t end = layout.offset + layout.size;
        for (const RuleWords& other : param.words)
          if (other.at > words.at) end = std::min(end, layout.offset + other.at);
        result.parts.push_back({layout.offset + words.at, end, flow_of(words.mode)});
      }
    }
    return;
  }
  result.leaks = !function.self_contained;
  // The code for another architecture, ranked as among the sources of evidence. It holds for the image that it came
  // with, and so does what was seen: replay compares that if launches were watched.
  if (is_proven && function.code != 0 && seen_ != nullptr && seen_->any()) return judge_proof(function, result);
  if (!judge_types(function, result)) result.otherwise = kAnything;
  result.may_be_watched = function.code != 0 && seen_ != nullptr;
}

const KernelFlows::Known& KernelFlows::known(std::uint32_t function) {
  Known& result = known_[function];
  if (!result.asked) {
    result.asked = true;
    judge(function, result);
  }
  return result;
}

bool KernelFlows::by_sight(std::uint32_t call) {
  if (!known(trace_.calls[call].function).may_be_watched) return false;
  const auto [found, is_new] = stores_none_.try_emplace(call);
  if (is_new) found->second = seen_->stores_none(call);
  return found->second;
}

template <class Counts>
PointerFlow KernelFlows::together(std::uint32_t call, Counts counts) {
  const Known& all = known(trace_.calls[call].function);
  PointerFlow flow = all.otherwise;
  for (const Part& part : all.parts) {
    if (!counts(part)) continue;
    flow.is_stored |= part.flow.is_stored;
    flow.keeps |= part.flow.keeps;
    flow.from |= part.flow.from;
    flow.to |= part.flow.to;
  }
  if ((flow.is_stored || flow.keeps) && by_sight(call)) flow.is_stored = flow.keeps = false;
  return flow;
}

PointerFlow KernelFlows::of(std::uint32_t call, std::uint32_t at) {
  return together(call, [at](const Part& part) { return at >= part.begin && at < part.end; });
}

PointerFlow KernelFlows::any(std::uint32_t call) {
  return together(call, [](const Part&) { return true; });
}

bool KernelFlows::leaks(std::uint32_t function) { return known(function).leaks; }

}  // namespace nimble::analyzer
