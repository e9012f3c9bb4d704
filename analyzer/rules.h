// Declared accesses that a user wrote down: the rules file of docs/FORMAT.md.
//
// Rules owns its compiled expressions; it is immutable once read, so threads may share it. Errors: InputError, naming
// file and field.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

inline constexpr int kRulesVersion = 1;
inline constexpr std::size_t kMaxRulesBytes = 4 << 20;

enum class RuleParam : std::uint8_t { in, out, inout, value, table, table_in, table_out };

struct Rule {
  std::string text;  // the expression, as written
  std::regex kernel;
  std::vector<RuleParam> params;
};

class Rules {
 public:
  // Appends the rules of one file; the first rule that matches speaks, over all files in the order of reading.
  void read(const std::string& path);

  // The first rule for a kernel of that name, mangled or demangled, with that many parameters; null where none is.
  const Rule* find(const std::string& name, const std::string& demangled, std::size_t params) const;

  std::size_t size() const { return rules_.size(); }

 private:
  std::vector<Rule> rules_;
};

}  // namespace nimble::analyzer
