#include "analyzer/rules/rules.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "analyzer/base/json_fields.h"
#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/quiet_file.h"

namespace nimble::analyzer {
namespace {

constexpr std::uint32_t kMostBytes = 32 * 1024;  // of a launch's parameters
constexpr std::string_view kRuleModes[] = {"in", "out", "inout", "value", "scan", "table", "table-in", "table-out"};

// One rule's object in the file.
class RuleReader {
 public:
  RuleReader(const nlohmann::json& entry, const char* prefix, const FilePlace& place) : fields_(entry, prefix, place) {}

  Rule read() {
    Rule rule(fields_.text("kernel"), expression("kernel"));
    if (fields_.has("communicates")) rule.communicates = fields_.flag_or("communicates", false);
    rule.blocks_wait = fields_.flag_or("blocks_wait", false);
    rule.tells_accesses = fields_.has("params") || !(rule.communicates || rule.blocks_wait);
    if (rule.tells_accesses)
      for (const nlohmann::json& param : fields_.list("params")) rule.params.push_back(read_param(param));
    for (const char* of_params : {"more", "sizes", "fractions", "self_contained"})
      if (!rule.tells_accesses && fields_.has(of_params)) fields_.fail(of_params, "says nothing without params");
    if (fields_.has("more")) rule.more = mode(fields_.member("more"), "more");
    if (fields_.has("sizes"))
      for (const nlohmann::json& size : fields_.list("sizes")) rule.sizes.push_back(read_sizes(size));
    if (rule.sizes.size() > rule.params.size()) fields_.fail("sizes", "has more entries than params");
    if (fields_.has("fractions")) rule.fractions = expression("fractions");
    rule.self_contained = fields_.flag_or("self_contained", false);
    rule.from = fields_.text_or("from", "");
    fields_.text_or("comment", "");
    return rule;
  }

 private:
  Expression expression(const char* field) const {
    try {
      return Expression(fields_.text(field));
    } catch (const ExpressionError& error) {
      fields_.fail(field, std::string("is not a regular expression: ") + error.what());
    }
  }

  std::uint32_t number(const nlohmann::json& value, const char* name) const {
    return static_cast<std::uint32_t>(fields_.number_of(value, name, kMostBytes));
  }

  RuleMode mode(const nlohmann::json& word, const char* name) const {
    const auto found = std::find(std::begin(kRuleModes), std::end(kRuleModes), fields_.text_of(word, name));
    if (found == std::end(kRuleModes))
      fields_.fail(name, "must contain only in, out, inout, value, scan, table, table-in and table-out");
    return static_cast<RuleMode>(found - std::begin(kRuleModes));
  }

  std::vector<std::uint32_t> read_sizes(const nlohmann::json& value) const {
    if (value.is_null() || value == 0) return {};
    if (!value.is_array()) return {number(value, "sizes")};
    if (value.empty()) fields_.fail("sizes", "has an empty list, which matches nothing");
    std::vector<std::uint32_t> sizes;
    for (const nlohmann::json& size : value) sizes.push_back(number(size, "sizes"));
    return sizes;
  }

  RuleParam read_param(const nlohmann::json& param) const {
    if (!param.is_object()) return {mode(param, "params"), {}};
    const auto words = param.find("words");
    if (words == param.end() || !words->is_array() || param.size() != 1)
      fields_.fail("params", "an object in it must be {\"words\": [[byte, count, mode], ...]}");
    RuleParam result{RuleMode::words, {}};
    for (const nlohmann::json& entry : *words) {
      if (!entry.is_array() || entry.size() != 3) fields_.fail("params", "words must hold [byte, count, mode]");
      RuleWords list{number(entry[0], "params"), count(entry[1]), mode(entry[2], "params")};
      if (list.at % 8 != 0) fields_.fail("params", "words must begin at a multiple of 8 bytes");
      if (list.mode > RuleMode::inout && list.mode != RuleMode::scan)
        fields_.fail("params", "the mode of words must be in, out, inout or scan");
      result.words.push_back(list);
    }
    return result;
  }

  RuleCount count(const nlohmann::json& value) const {
    RuleCount result;
    if (value.is_number()) {
      result.number = number(value, "params");
      return result;
    }
    if (value.is_object() && value.size() == 1 && value.contains("largest")) {
      const nlohmann::json& table = value["largest"];
      if (!table.is_array() || table.size() != 2) fields_.fail("params", "largest must be [byte, bytes of each]");
      result.kind = RuleCount::Kind::largest;
      result.at = number(table[0], "params");
      result.bytes = number(table[1], "params");
      if (result.bytes != 1 && result.bytes != 2 && result.bytes != 4)
        fields_.fail("params", "the numbers of largest have 1, 2 or 4 bytes");
      return result;
    }
    constexpr std::string_view kCounts[] = {"grid.x", "grid.y", "grid.z", "rest"};
    const std::string text = value.is_string() ? value.get<std::string>() : std::string();
    const auto found = std::find(std::begin(kCounts), std::end(kCounts), text);
    if (found == std::end(kCounts))
      fields_.fail("params", "a count is a number, rest, grid.x, grid.y, grid.z or {\"largest\": [byte, bytes]}");
    result.axis = static_cast<std::uint32_t>(found - std::begin(kCounts));
    result.kind = result.axis < 3 ? RuleCount::Kind::grid : RuleCount::Kind::rest;
    return result;
  }

  Fields fields_;
};

}  // namespace

const RuleParam& Rule::param(std::size_t i) const {
  // Never destroyed: libnimble.so may use it while the process ends.
  static const auto* const kModes = [] {
    auto* all = new std::vector<RuleParam>;
    for (std::size_t mode = 0; mode < std::size(kRuleModes); ++mode) all->push_back({static_cast<RuleMode>(mode), {}});
    return all;
  }();
  return i < params.size() ? params[i] : (*kModes)[static_cast<std::size_t>(*more)];
}

bool Rule::moves_fractions(const std::string& name, const std::string& demangled) const {
  return fractions && matches_name(*fractions, name, demangled);
}

bool Rule::fits(const std::vector<ParamLayout>& layout) const {
  if (more ? layout.size() < params.size() : layout.size() != params.size()) return false;
  bool same = true;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    same &= sizes[i].empty() || std::ranges::find(sizes[i], layout[i].size) != sizes[i].end();
  return same;
}

void Rules::read(const std::string& path) {
  std::string text;
  const int error = read_quiet(path.c_str(), kMaxRulesBytes, text);
  if (error == EFBIG) throw InputError(path, 0, "", "longer than " + std::to_string(kMaxRulesBytes) + " bytes");
  if (error == EISDIR || error == EIO) throw InputError(path, 0, "", "cannot be read");
  if (error != 0) throw InputError(path, 0, "", std::string("cannot be opened: ") + std::strerror(error));
  read_text(text, path);
}

void Rules::read_text(const std::string& text, const std::string& name) {
  nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const JsonEnds ends(file);
  if (file.is_discarded() || !file.is_object()) throw InputError(name, 0, "", "is not a JSON object");
  FilePlace place{name, 0};
  Fields top(file, "", place);
  std::uint64_t version = top.number("nimble_rules");
  if (version < 1 || version > kRulesVersion)
    top.fail("nimble_rules", "is " + std::to_string(version) + "; this nimble-analyze reads versions 1 to " +
                                 std::to_string(kRulesVersion));
  std::size_t index = 0;
  for (const nlohmann::json& entry : top.list("rules")) {
    std::string prefix = "rules[" + std::to_string(index++) + "]";
    if (!entry.is_object()) top.fail(prefix.c_str(), "must be an object");
    prefix += ".";
    rules_.push_back(std::make_shared<const Rule>(RuleReader(entry, prefix.c_str(), place).read()));
  }
}

const Rule* Rules::find(const std::string& name, const std::string& demangled,
                        const std::vector<ParamLayout>& params) const {
  for (const auto& rule : rules_)
    if (rule->tells_accesses && rule->fits(params) && matches_name(rule->kernel, name, demangled)) return rule.get();
  return nullptr;
}

bool Rules::blocks_wait(const std::string& name, const std::string& demangled) const {
  return std::ranges::any_of(
      rules_, [&](const auto& rule) { return rule->blocks_wait && matches_name(rule->kernel, name, demangled); });
}

const Rule* Rules::of_communication(const std::string& name, const std::string& demangled,
                                    const std::optional<std::vector<ParamLayout>>& params, bool self_contained) const {
  for (const auto& rule : rules_) {
    if (!rule->communicates) continue;
    const bool speaks =
        !rule->tells_accesses || (params && rule->fits(*params) && (self_contained || !rule->self_contained));
    if ((speaks || *rule->communicates) && matches_name(rule->kernel, name, demangled)) return rule.get();
  }
  return nullptr;
}

}  // namespace nimble::analyzer
