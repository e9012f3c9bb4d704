#include "analyzer/rules.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "analyzer/json_fields.h"

namespace nimble::analyzer {
namespace {

// std::regex recurses for every character that it matches; no real name comes near this.
constexpr std::size_t kMaxName = 8 * 1024;
constexpr std::string_view kWords[] = {"in", "out", "inout", "value", "table", "table-in", "table-out"};

bool matches(const std::regex& pattern, const std::string& name) {
  return name.size() <= kMaxName && std::regex_match(name, pattern);
}

}  // namespace

void Rules::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError(path, 0, "", std::string("cannot be opened: ") + std::strerror(errno));
  std::string text(kMaxRulesBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw InputError(path, 0, "", "cannot be read");
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxRulesBytes)
    throw InputError(path, 0, "", "longer than " + std::to_string(kMaxRulesBytes) + " bytes");
  nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded() || !file.is_object()) throw InputError(path, 0, "", "is no JSON object");
  FilePlace place{path, 0};
  Fields top(file, "", place);
  std::uint64_t version = top.number("nimble_rules");
  if (version != kRulesVersion)
    top.fail("nimble_rules",
             "is " + std::to_string(version) + "; this nimble-analyze reads version " + std::to_string(kRulesVersion));
  std::size_t index = 0;
  for (const nlohmann::json& entry : top.list("rules")) {
    std::string prefix = "rules[" + std::to_string(index++) + "]";
    if (!entry.is_object()) top.fail(prefix.c_str(), "must be an object");
    prefix += ".";
    Fields fields(entry, prefix.c_str(), place);
    Rule rule;
    rule.text = fields.text("kernel");
    try {
      rule.kernel = std::regex(rule.text, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      fields.fail("kernel", std::string("is no regular expression: ") + error.what());
    }
    for (const nlohmann::json& word : fields.list("params")) {
      auto found = std::find(std::begin(kWords), std::end(kWords), fields.text_of(word, "params"));
      if (found == std::end(kWords))
        fields.fail("params", "must hold only in, out, inout, value, table, table-in and table-out");
      rule.params.push_back(static_cast<RuleParam>(found - std::begin(kWords)));
    }
    fields.text_or("comment", "");
    rules_.push_back(std::move(rule));
  }
}

const Rule* Rules::find(const std::string& name, const std::string& demangled, std::size_t params) const {
  for (const Rule& rule : rules_)
    if (rule.params.size() == params && (matches(rule.kernel, name) || matches(rule.kernel, demangled))) return &rule;
  return nullptr;
}

}  // namespace nimble::analyzer
