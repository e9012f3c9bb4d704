// Declared accesses: rules files in the format of docs/reference/formats.md, the user's or those shipped with the tool
// (analyzer/rules/shipped_rules.h).
//
// Rules owns its compiled expressions; it is immutable once read, so threads may share it. Errors: InputError, naming
// file and field.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/rules/expression.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

inline constexpr int kRulesVersion = 5;
inline constexpr std::size_t kMaxRulesBytes = 4 << 20;

// What a kernel does with a parameter, or with the memory that some words of it point to. In the order of kRuleModes.
enum class RuleMode : std::uint8_t {
  in,         // reads what it points to
  out,        // writes
  inout,      // both
  value,      // not a pointer
  scan,       // everything that it points to is read and written
  table,      // reads pointers there, and reads and writes what they lead to
  table_in,   // reads pointers there, and reads what they lead to
  table_out,  // stores pointers of its other parameters there
  words,      // see RuleParam::words
};

// How many words of a list are in use. Structures are filled in for each launch, and often not cleared before: what
// comes after the last word in use is garbage.
struct RuleCount {
  enum class Kind : std::uint8_t { number, rest, grid, largest };
  Kind kind = Kind::number;
  std::uint32_t number = 1;  // number: so many. rest: as many as there are
  std::uint32_t axis = 0;    // grid: as many as the grid has blocks along this axis
  std::uint32_t at = 0,
                bytes = 0;  // largest: one more than the largest of the grid's first numbers (one for each block
                            // along x), which stand at byte `at` of the parameter and have so many bytes each
};

// Words of a parameter from byte `at` on.
struct RuleWords {
  std::uint32_t at = 0;
  RuleCount count;
  RuleMode mode = RuleMode::in;
};

struct RuleParam {
  RuleMode mode = RuleMode::value;
  std::vector<RuleWords> words;  // other words are not pointers
};

struct Rule {
  Rule(std::string written, Expression compiled) : text(std::move(written)), kernel(std::move(compiled)) {}

  std::string text;  // the expression, as written
  Expression kernel;
  bool tells_accesses = false;  // has `params`; else it only says whether the kernel communicates, or how
  std::vector<RuleParam> params;
  std::optional<RuleMode> more;  // for further parameters, if there may be any number of them
  // Sizes that each of the first parameters may have, none if any will do: the layouts that were read.
  std::vector<std::vector<std::uint32_t>> sizes;
  std::optional<Expression> fractions;  // kernels that this matches, too, move floating-point numbers: no addresses
  bool self_contained = false;          // only applies if the code reaches no memory except through its parameters
  std::optional<bool> communicates;  // whether it may be communicating with another process, another device or the host
  bool blocks_wait = false;          // its blocks wait for each other, although the launch does not guarantee them room
  std::string from;                  // where a shipped rule was found: framework, version, source

  const RuleParam& param(std::size_t i) const;
  // Whether a kernel of that name moves floating-point numbers, which are not addresses.
  bool moves_fractions(const std::string& name, const std::string& demangled) const;
  // Whether a kernel with these parameters has those that the rule is about.
  bool fits(const std::vector<ParamLayout>& layout) const;
};

class Rules {
 public:
  // Appends the rules of one file; the first rule that matches applies, over all files in the order of reading.
  void read(const std::string& path);
  // The same for a text. `name` is what messages call it.
  void read_text(const std::string& text, const std::string& name);

  // The first rule for a kernel of that name, mangled or demangled, with these parameters, that says what it accesses;
  // null if there is none.
  const Rule* find(const std::string& name, const std::string& demangled, const std::vector<ParamLayout>& params) const;

  // The first that says whether such a kernel communicates; null if there is none. A rule that has parameters and does
  // not apply to this kernel, because these or the code are not as it says, still counts if it says that the kernel
  // does communicate.
  const Rule* of_communication(const std::string& name, const std::string& demangled,
                               const std::optional<std::vector<ParamLayout>>& params, bool self_contained) const;

  // Whether any rule says that blocks of a kernel of that name wait for each other.
  bool blocks_wait(const std::string& name, const std::string& demangled) const;

  std::size_t size() const { return rules_.size(); }

 private:
  std::vector<std::shared_ptr<const Rule>> rules_;  // shared with copies
};

}  // namespace nimble::analyzer
