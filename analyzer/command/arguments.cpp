#include "analyzer/command/arguments.h"

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "analyzer/base/demangle.h"
#include "analyzer/base/errors.h"
#include "analyzer/report/describe.h"
#include "analyzer/rules/expression.h"
#include "analyzer/rules/shipped_rules.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/written_file.h"

namespace nimble::analyzer {

void RulesArguments::add_to(CLI::App& app) {
  app.add_option("--rules", files, "A file that says what kernels read and write; repeatable")
      ->type_name("FILE")
      ->expected(1);
  app.add_flag("--no-shipped-rules", no_shipped, "Leave out the rules that come with nimble-analyze");
}

void RulesArguments::read(Rules& rules) const {
  for (const std::string& path : files) rules.read(path);
  if (!no_shipped) add_shipped_rules(rules);
}

void EvidenceArguments::add_to(CLI::App& app) {
  rules.add_to(app);
  app.add_option("--trust", trust, "The weakest evidence to trust")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTrustNames), std::end(kTrustNames))));
}

AnalysisOptions EvidenceArguments::options() const {
  AnalysisOptions options;
  options.trust = *trust_of(trust);
  options.one_kind = true;
  options.accept_partial = true;
  rules.read(options.rules);
  return options;
}

void KernelNames::add_to(CLI::App& app) {
  app.add_option("--kernel", expression,
                 "Only kernels with a name, mangled or demangled, that this regular expression matches as a whole");
}

std::function<bool(const std::string&)> KernelNames::filter() const {
  if (expression.empty()) return [](const std::string&) { return true; };
  try {
    return
        [names = Expression(expression)](const std::string& name) { return matches_name(names, name, demangle(name)); };
  } catch (const ExpressionError& error) {
    throw InputError("--kernel", 0, "", "is not a regular expression: " + std::string(error.what()));
  }
}

bool parse(CLI::App& app, int argc, char** argv, int& status, CommandFacts facts) {
  add_describe(app, std::move(facts));
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    const bool helped = error.get_exit_code() == 0;  // the help or the version was asked for
    status = helped ? app.exit(error) : complain(std::string(error.what()) + "; see nimble-analyze --help", kExitInput);
    return false;
  }
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw std::system_error(errno, std::generic_category(), "standard output");
}

void write_named(const std::string& path, const std::string& text, FileKind kind, bool force) {
  const WrittenFile written = write_own_file(path, text, kind, taken_of_named(path, force));
  if (!written.why_other.empty()) throw std::runtime_error(refusal_of_named(path, written.why_other));
  if (written.error != 0) throw std::system_error(written.error, std::generic_category(), path);
}

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "nimble-analyze: %s\n", message.c_str());
  return status;
}

std::string unordered_text(std::span<const StepReading* const> kinds, const Unordered& pair) {
  const StepReading& step = *kinds[pair.kind];
  return (pair.kind == 0 ? "op " : "of kind " + std::to_string(pair.kind) + " of step, op ") +
         std::to_string(pair.first) + " (" + describe_op(step, pair.first, 40) + ") and op " +
         std::to_string(pair.second) + " (" + describe_op(step, pair.second, 40) +
         ") are not ordered by the schedule: " + pair.why;
}

}  // namespace nimble::analyzer
