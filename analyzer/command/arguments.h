// What the commands of nimble-analyze share: arguments about rules and kernels, and what they print.
//
// One thread. print() throws std::system_error if standard output cannot be written.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "analyzer/check/checker.h"
#include "analyzer/options.h"
#include "analyzer/rules/rules.h"
#include "nimble/internal/command/describe_command.h"
#include "nimble/internal/files/file_kind.h"

namespace nimble::analyzer {

// Which rules to use.
struct RulesArguments {
  std::vector<std::string> files;
  bool no_shipped = false;

  void add_to(CLI::App& app);
  // Throws InputError for rules that cannot be read.
  void read(Rules& rules) const;
};

// What to believe, for commands that write no schedule.
struct EvidenceArguments {
  RulesArguments rules;
  std::string trust = std::string(name(kDefaultTrust));

  void add_to(CLI::App& app);
  // For analyzing one kind of step, without a schedule. Throws what RulesArguments::read() throws.
  AnalysisOptions options() const;
};

// Which kernels to tell of: by default all.
struct KernelNames {
  std::string expression;

  void add_to(CLI::App& app);
  // Whether a kernel of this name is one of them. Throws InputError if --kernel is no expression.
  std::function<bool(const std::string& name)> filter() const;
};

// Reads the command line into what the options were bound to, and answers --describe. False, with the exit status, if
// there is nothing to do.
bool parse(CLI::App& app, int argc, char** argv, int& status, CommandFacts facts = {});

void print(const std::string& text);

// Writes a file that the user named; one that Nimble has not written is replaced only if `force`. Throws
// std::runtime_error if it is refused, and std::system_error if it fails.
void write_named(const std::string& path, const std::string& text, FileKind kind, bool force);

// Prints a line to standard error. Returns `status`.
int complain(const std::string& message, int status);

// A line about two ops that a schedule should order and does not.
std::string unordered_text(std::span<const StepReading* const> kinds, const Unordered& pair);

}  // namespace nimble::analyzer
