#include "analyzer/access/sources/signature.h"
#include "analyzer/base/demangle.h"

#include <algorithm>

#include "analyzer/access/kernel_params.h"

namespace nimble::analyzer {

namespace {

// Whether it points to something that may be pointers.
bool is_indirect(const ParamType& type) { return type.kind == ParamKind::table || type.kind == ParamKind::any; }

}  // namespace

// Whether it leads to pointers in memory, as far as the type tells.
bool SignatureAccess::leads_on(const ParamType& type) {
  return is_indirect(type) || (type.kind == ParamKind::aggregate && !type.array_of_numbers);
}

SignatureAccess::SignatureAccess(const Trace& trace, PointersInMemory& in_memory, const Observations* seen)
    : trace_(trace),
      in_memory_(in_memory),
      seen_(seen),
      hidden_(hidden_memory(trace)),
      verdicts_(trace.functions.size()) {}

SignatureAccess::Verdict SignatureAccess::judge(const TraceFunction& function) const {
  Verdict verdict;
  verdict.asked = true;
  auto no = [&](std::string why) {
    verdict.why_not = std::move(why);
    return verdict;
  };
  if (!hidden_.empty())
    return no("the program created " + hidden_ + ", through which kernels may reach memory that no parameter names");
  if (function.image == kNone) return no("its image is unknown");
  if (!function.self_contained)
    return no("its image is not self-contained" + (function.why.empty() ? "" : " (" + function.why + ")"));
  auto types = parameter_types(demangle(function.name));
  if (!types) return no("its name does not tell its parameter types");
  if (types->size() != function.params->size())
    return no("its name tells " + std::to_string(types->size()) + " parameters, it takes " +
              std::to_string(function.params->size()));
  for (std::size_t i = 0; i < types->size(); ++i) {
    ParamType type = classify((*types)[i]);
    if (type.kind == ParamKind::unknown)
      return no(std::string("it ") + type.why + " (parameter " + std::to_string(i) + ")");
    if (type.size != 0 && type.size != (*function.params)[i].size)
      return no("parameter " + std::to_string(i) + " has " + std::to_string((*function.params)[i].size) +
                " bytes, its type says " + std::to_string(type.size));
    verdict.types.push_back(type);
  }
  if (function.follows_memory && std::ranges::none_of(verdict.types, leads_on))
    return no("its code may follow addresses in memory, to which its signature does not lead");
  return verdict;
}

// Each kind of parameter has its own reason why it does not tell.
bool SignatureAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  if (op.call.kind != CallKind::launch) return false;
  if (auto why = why_parameters_do_not_tell(op)) {
    why_not = *why;
    return false;
  }
  Verdict& verdict = verdicts_[op.call.function];
  const TraceFunction& function = trace_.functions[op.call.function];
  if (!verdict.asked) verdict = judge(function);
  why_not = verdict.why_not;
  if (!why_not.empty()) return false;
  const auto& params = *function.params;
  for (std::size_t i = 0; i < params.size() && why_not.empty(); ++i) {
    ParamKind kind = verdict.types[i].kind;
    bool is_pointer = kind != ParamKind::value && kind != ParamKind::aggregate;
    if (is_pointer && params[i].offset % 8 != 0)
      why_not = "parameter " + std::to_string(i) + " is a pointer that is not aligned";
    else if (is_pointer && leads_to_unknown(op, params[i].offset))
      why_not = "parameter " + std::to_string(i) + " does not point into an allocation that the trace knows";
    else if (kind == ParamKind::value && is_unsure(op, params[i]))
      why_not = "parameter " + std::to_string(i) + " may be an address just outside an allocation";
    else if (kind == ParamKind::aggregate && has_stray_address(op, params[i]))
      why_not = "parameter " + std::to_string(i) + " is a class by value that may hold addresses of unknown memory";
  }
  if (!why_not.empty()) return false;
  const std::size_t before = found.size();
  for (std::size_t i = 0; i < params.size(); ++i) {
    const ParamType& type = verdict.types[i];
    const bool only_read = type.kind == ParamKind::reads || (is_indirect(type) && type.is_const);
    add_whole(pointers_in(op, params[i]), !only_read, found);
    if (follow(op, i, type, found, why_not)) continue;
    found.resize(before);
    return false;
  }
  return true;
}

// Each way to follow pointers has its own conditions and its own reason.
bool SignatureAccess::follow(const OpQuestion& op, std::size_t param, const ParamType& type, std::vector<Access>& found,
                             std::string& why_not) {
  const bool leads_on = type.kind == ParamKind::aggregate && !type.array_of_numbers;
  if (!SignatureAccess::leads_on(type)) return true;
  const auto pointers = pointers_in(op, (*trace_.functions[op.call.function].params)[param]);
  if (pointers.empty()) return true;
  std::string why = "other nodes of its graph may fill it";
  std::vector<std::uint32_t> from, reached;
  for (const PointerWord& pointer : pointers) from.push_back(pointer.object);
  bool known = !op.in_graph();
  // The program may put something else there until the graph runs.
  const bool follows_nothing =
      seen_ && seen_->follows_nothing(op.call.function) && !trace_.functions[op.call.function].follows_memory;
  const bool by_graph = leads_on && is_node_of_a_graph(op.call) && !follows_nothing;
  const auto fresh = [&](std::uint32_t object) { return in_memory_.fresh(object, why); };
  if (known && by_graph) known = std::ranges::all_of(from, fresh);
  if (known && leads_on) known = in_memory_.reachable(from, reached, why);
  if (known && by_graph) known = std::ranges::all_of(reached, fresh);
  if (known && type.kind == ParamKind::table) known = in_memory_.table(from.front(), type.pointee, reached, why);
  if (known && type.kind == ParamKind::any) known = in_memory_.plain(from.front(), why);
  if (!known) {
    why_not = std::string("it ") +
              (leads_on ? "takes a class by value that may lead to pointers in memory" : type.why) + " (parameter " +
              std::to_string(param) + "), and it is not known what is there: " + why;
    return false;
  }
  for (const std::uint32_t object : reached)
    add_whole_object(object, pointers.front().at, type.kind != ParamKind::table || !type.reads_pointees, found);
  return true;
}

}  // namespace nimble::analyzer
