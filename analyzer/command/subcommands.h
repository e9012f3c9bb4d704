// What nimble-analyze can be asked for beside a schedule: its subcommands, one row each.
#pragma once

#include <string>
#include <vector>

#include "nimble/internal/command/describe_command.h"

namespace nimble::analyzer {

// Runs the subcommand that the first argument names; without one, analyzes a trace. Returns the exit status. Throws as
// the commands do. One thread.
int run_command(int argc, char** argv);

// The rows in words, for nimble-analyze --help.
std::string subcommands_text();

// The rows, for --describe.
std::vector<CommandFacts::Subcommand> described_subcommands();

}  // namespace nimble::analyzer
