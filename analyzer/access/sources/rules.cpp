#include "analyzer/access/sources/rules.h"
#include "analyzer/base/demangle.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "analyzer/access/kernel_params.h"
#include "analyzer/pointers/parameter_types.h"

namespace nimble::analyzer {
namespace {

// A list of words of a launch's parameters that a rule speaks about, as many as are in use.
struct LiveWords {
  std::uint32_t first = 0, count = 0;  // byte in the packed parameters, words
};

// One more than the largest of the first numbers of a table; nothing if these are not all in the parameter.
std::optional<std::uint32_t> largest(const OpQuestion& op, const ParamLayout& param, const RuleCount& count) {
  const std::uint64_t blocks = op.call.grid[0];
  if (blocks == 0 || count.at + blocks * count.bytes > param.size) return std::nullopt;
  std::uint32_t result = 0;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    std::uint32_t number = 0;
    std::memcpy(&number, op.call.params.data() + param.offset + count.at + block * count.bytes, count.bytes);
    result = std::max(result, number);
  }
  return result < 0xffff ? std::optional(result + 1) : std::nullopt;
}

// Nothing if the parameter has no room for the list.
std::optional<LiveWords> live_words(const OpQuestion& op, const ParamLayout& param, const RuleWords& words) {
  const std::uint64_t room = words.at <= param.size ? (param.size - words.at) / 8 : 0;
  std::uint64_t count = words.count.number;
  if (words.count.kind == RuleCount::Kind::rest) count = room;
  if (words.count.kind == RuleCount::Kind::grid) {
    count = op.call.grid[words.count.axis];
    if (count == 0) return std::nullopt;  // a node of a graph, whose grid the trace does not tell
  }
  if (words.count.kind == RuleCount::Kind::largest) {
    const auto found = largest(op, param, words.count);
    if (!found) return std::nullopt;
    count = *found;
  }
  if (count > room || param.offset % 8 != 0) return std::nullopt;
  return LiveWords{param.offset + words.at, static_cast<std::uint32_t>(count)};
}

constexpr const char* kUnknown = " does not point into an allocation that the trace knows";

std::string where(const Rule& rule, std::size_t param) {
  return "rule \"" + rule.text + "\": parameter " + std::to_string(param);
}

}  // namespace

RulesAccess::RulesAccess(const Trace& trace, const Rules& rules, PointersInMemory& in_memory)
    : trace_(trace),
      rules_(rules),
      in_memory_(in_memory),
      hidden_(hidden_memory(trace)),
      cached_(trace.functions.size()) {}

const Rule* RulesAccess::rule_of(std::uint32_t function) {
  Cached& cached = cached_[function];
  if (!cached.asked) {
    const TraceFunction& kernel = trace_.functions[function];
    cached.rule = rules_.find(kernel.name, demangle(kernel.name), *kernel.params);
    cached.asked = true;
  }
  return cached.rule;
}

bool RulesAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  // If parameters cannot tell, the signature says so too; saying it once is enough.
  if (op.call.kind != CallKind::launch || rules_.size() == 0 || why_parameters_do_not_tell(op)) return false;
  const Rule* rule = rule_of(op.call.function);
  // The signature also tells about hidden memory and other ways to memory.
  if (rule == nullptr ||
      (rule->self_contained && !(hidden_.empty() && trace_.functions[op.call.function].self_contained)))
    return false;
  const auto& params = *trace_.functions[op.call.function].params;
  const std::size_t before = found.size();
  for (std::size_t i = 0; i < params.size() && why_not.empty(); ++i) ask_param(op, *rule, i, found, why_not);
  if (why_not.empty()) return true;
  found.resize(before);
  return false;
}

void RulesAccess::ask_param(const OpQuestion& op, const Rule& rule, std::size_t index, std::vector<Access>& found,
                            std::string& why_not) const {
  const ParamLayout& layout = (*trace_.functions[op.call.function].params)[index];
  const RuleParam& param = rule.param(index);
  switch (param.mode) {
    case RuleMode::value:
      return;
    case RuleMode::scan:
      if (has_stray_address(op, layout)) why_not = where(rule, index) + " may hold addresses of unknown memory";
      return add_whole(pointers_in(op, layout), true, found);
    case RuleMode::words:
      for (const RuleWords& words : param.words) {
        const auto live = live_words(op, layout, words);
        if (!live) {
          why_not = where(rule, index) + " has no room for the words at byte " + std::to_string(words.at);
          return;
        }
        const ParamLayout part{live->first, 8 * live->count};
        if (words.mode == RuleMode::scan) {
          if (has_stray_address(op, part)) why_not = where(rule, index) + " may hold addresses of unknown memory";
          add_whole(pointers_in(op, part), true, found);
          continue;
        }
        for (std::uint32_t at = live->first; at < live->first + 8 * live->count; at += 8)
          if (leads_to_unknown(op, at)) why_not = where(rule, index) + kUnknown;
        add_whole(pointers_in(op, part), words.mode != RuleMode::in, found);
      }
      return;
    case RuleMode::table:
    case RuleMode::table_in:
      return ask_table(op, rule, index, found, why_not);
    default: {
      const bool stray = layout.size == 8 && layout.offset % 8 == 0 ? leads_to_unknown(op, layout.offset)
                                                                    : has_stray_address(op, layout);
      if (stray) why_not = where(rule, index) + kUnknown;
      return add_whole(pointers_in(op, layout), param.mode != RuleMode::in, found);
    }
  }
}

std::string RulesAccess::basis(const OpQuestion& op) {
  std::string text = "the rule \"";
  return text.append(rule_of(op.call.function)->text).append("\"");
}

void RulesAccess::ask_table(const OpQuestion& op, const Rule& rule, std::size_t index, std::vector<Access>& found,
                            std::string& why_not) const {
  const ParamLayout& layout = (*trace_.functions[op.call.function].params)[index];
  const auto pointers = pointers_in(op, layout);
  if (layout.size != 8 || layout.offset % 8 != 0 || leads_to_unknown(op, layout.offset))
    why_not = where(rule, index) + kUnknown;
  add_whole(pointers, false, found);
  for (const PointerWord& pointer : pointers) {
    std::vector<std::uint32_t> reached;
    std::string why = "other nodes of its graph may fill it";
    if (op.in_graph() || !in_memory_.table(pointer.object, Pointee::anything, reached, why)) {
      why_not = where(rule, index) + ": it is not known what is in the table: " + why;
      return;
    }
    const bool writes = rule.param(index).mode == RuleMode::table;
    for (const std::uint32_t object : reached) add_whole_object(object, pointer.at, writes, found);
  }
}

bool RulesAccess::is_pointer(const OpQuestion& op, std::uint32_t at) {
  const auto& params = *trace_.functions[op.call.function].params;
  const Rule& rule = *rule_of(op.call.function);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (at < params[i].offset || at >= params[i].offset + params[i].size) continue;
    const RuleParam& param = rule.param(i);
    if (param.mode != RuleMode::words) return param.mode != RuleMode::value;
    return std::any_of(param.words.begin(), param.words.end(), [&](const RuleWords& words) {
      const auto live = live_words(op, params[i], words);
      return live && at >= live->first && at < live->first + 8 * live->count;
    });
  }
  return true;
}

void RulesAccess::pin(const OpQuestion& op, Pinned& pinned) {
  const auto& params = *trace_.functions[op.call.function].params;
  const Rule& rule = *rule_of(op.call.function);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const RuleParam& param = rule.param(i);
    for (const RuleWords& words : param.words) {
      pinned.shape |= words.count.kind == RuleCount::Kind::grid || words.count.kind == RuleCount::Kind::largest;
      if (words.count.kind != RuleCount::Kind::largest) continue;
      pinned.params.add({params[i].offset + words.count.at, op.call.grid[0] * words.count.bytes});
    }
  }
}

}  // namespace nimble::analyzer
