// Regular expressions of rules files: those of ECMAScript that a finite automaton can decide, that is all except
// backreferences and lookaround.
//
// Names are bytes, in any encoding, and so are expressions: a character is a byte. Reading one does not recurse, and
// its size is bounded. Copies share the automaton; threads may share both.
//
// RE2 would do the same, but cannot be part of a library that is preloaded: Debian's libre2.a has thread-locals that
// only executables may have, and libre2.so might be found by a host that brings another version.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

namespace nimble::analyzer {

class Automaton;

// Why a text is not an expression, for a message.
class ExpressionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Expression {
 public:
  // Throws ExpressionError.
  explicit Expression(const std::string& text);

  // Whether it matches the whole text.
  bool matches(const std::string& text) const;

 private:
  std::shared_ptr<Automaton> automaton_;
};

// Whether a kernel is meant: the expression matches its name, as the code has it or demangled.
bool matches_name(const Expression& expression, const std::string& name, const std::string& demangled);

}  // namespace nimble::analyzer
