// What a program says of its own command line, for man pages and completions, which scripts/commands writes.
//
// Free functions without state. A CLI::App belongs to one thread.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <vector>

namespace nimble {

// What CLI11 does not know of a command line.
struct CommandFacts {
  struct Subcommand {
    std::string name, help;
  };
  std::vector<Subcommand> subcommands;  // that are no subcommands of the CLI::App
  // What an option may be, if the CLI::App does not check it.
  std::map<const CLI::Option*, std::vector<std::string>> words;
};

// The command line as a JSON object:
//   about, footer   text, as --help shows it
//   options         a list: names; help; takes, a word for its value (FILE and DIR are names of files and folders), or
//                   empty; count of values; words that it may be; limits of a number; fallback, the default; repeatable
//   positionals     a list: name, and help, takes, count, words, limits, fallback, repeatable, likewise
//   subcommands     a list: name, help; what they take, they say themselves
// Options that --help does not show are left out.
std::string described_command(const CLI::App& app, const CommandFacts& facts = {});

// Adds the option --describe, which --help does not show: it prints the description, and nothing else is done. Call
// this when `app` has all its options.
void add_describe(CLI::App& app, CommandFacts facts = {});

}  // namespace nimble
