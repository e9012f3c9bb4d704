#include "analyzer/access_rules.h"

#include "analyzer/kernel_params.h"
#include "analyzer/signature.h"

namespace nimble::analyzer {

RulesAccess::RulesAccess(const Trace& trace, const Rules& rules)
    : trace_(trace), rules_(rules), cached_(trace.functions.size()) {}

const Rule* RulesAccess::rule_of(std::uint32_t function) {
  Cached& cached = cached_[function];
  if (!cached.asked) {
    const TraceFunction& kernel = trace_.functions[function];
    cached.rule = rules_.find(kernel.name, demangle(kernel.name), kernel.params->size());
    cached.asked = true;
  }
  return cached.rule;
}

bool RulesAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  // Where parameters cannot tell, the signature says so too; saying it once is enough.
  if (op.call.kind != CallKind::launch || rules_.size() == 0 || why_parameters_do_not_tell(op)) return false;
  const Rule* rule = rule_of(op.call.function);
  if (rule == nullptr) return false;
  const auto& params = *trace_.functions[op.call.function].params;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (rule->params[i] == RuleParam::value) continue;
    bool stray = params[i].size == 8 && params[i].offset % 8 == 0
                     ? pointers_in(op, params[i]).empty() && word_at(op.call.params, params[i].offset) != 0
                     : has_stray_address(op, params[i]);
    if (stray) {
      why_not = "rule \"" + rule->text + "\": parameter " + std::to_string(i) +
                " points into no allocation that the trace knows";
      return false;
    }
  }
  for (std::size_t i = 0; i < params.size(); ++i)
    if (rule->params[i] != RuleParam::value)
      add_whole(pointers_in(op, params[i]), rule->params[i] != RuleParam::in, found);
  return true;
}

std::string RulesAccess::basis(const OpQuestion& op) {
  std::string text = "the rule \"";
  return text.append(rule_of(op.call.function)->text).append("\"");
}

bool RulesAccess::is_pointer(const OpQuestion& op, std::uint32_t at) {
  const auto& params = *trace_.functions[op.call.function].params;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (at >= params[i].offset && at < params[i].offset + params[i].size)
      return rule_of(op.call.function)->params[i] != RuleParam::value;
  return true;
}

}  // namespace nimble::analyzer
