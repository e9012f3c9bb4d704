#include "analyzer/command/subcommands.h"

#include <algorithm>
#include <string_view>

#include "analyzer/command/analyze.h"
#include "analyzer/command/check.h"
#include "analyzer/command/code.h"
#include "analyzer/command/diff.h"
#include "analyzer/command/kernels.h"
#include "analyzer/command/report.h"
#include "analyzer/command/why_slow.h"

namespace nimble::analyzer {
namespace {

struct Subcommand {
  std::string_view name;
  int (*run)(int argc, char** argv);
  std::string_view arguments, help;
};

constexpr Subcommand kSubcommands[] = {
    {"check", check_command, "TRACE SCHEDULE", "checks a schedule against its trace"},
    {"code", code_command, "FILE", "prints what the kernels in a file touch"},
    {"diff", diff_command, "TRACE TRACE", "prints what is different between the steps of two traces"},
    {"kernels", kernels_command, "TRACE", "prints what the kernels of a trace touch, and how that is known"},
    {"report", report_command, "TRACE", "writes the report as an HTML page"},
    {"why-slow", why_slow_command, "TRACE", "says for what the GPU is idle or narrow, and what helps"},
};

}  // namespace

int run_command(int argc, char** argv) {
  if (argc > 1)
    for (const Subcommand& subcommand : kSubcommands)
      if (subcommand.name == argv[1]) return subcommand.run(argc - 1, argv + 1);
  return analyze_command(argc, argv);
}

std::string subcommands_text() {
  const auto call = [](const Subcommand& row) { return std::string(row.name) + " " + std::string(row.arguments); };
  std::size_t width = 0;
  for (const Subcommand& row : kSubcommands) width = std::max(width, call(row).size());
  std::string text = "Subcommands, each with its own --help:\n";
  for (const Subcommand& row : kSubcommands) {
    const std::string left = call(row);
    text += "  " + left + std::string(width - left.size() + 2, ' ') + std::string(row.help) + "\n";
  }
  return text;
}

std::vector<CommandFacts::Subcommand> described_subcommands() {
  std::vector<CommandFacts::Subcommand> described;
  for (const Subcommand& row : kSubcommands) described.push_back({std::string(row.name), std::string(row.help)});
  return described;
}

}  // namespace nimble::analyzer
