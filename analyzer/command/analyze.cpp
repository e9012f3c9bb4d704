#include "analyzer/command/analyze.h"

#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/check/checker.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/find_recording.h"
#include "analyzer/command/subcommands.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/report/counts.h"
#include "analyzer/report/dot.h"
#include "analyzer/report/report.h"
#include "analyzer/report/why.h"
#include "analyzer/rules/shipped_rules.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/written_file.h"
#include "nimble/internal/version.h"

namespace nimble::analyzer {
namespace {

struct Arguments {
  std::string trace;
  std::string output = "schedule.json";
  std::string policy = std::string(kPolicyNames[0]);
  std::string trust = std::string(name(kDefaultTrust));
  std::uint32_t max_streams = kDefaultMaxLanes;
  std::string memory_limit;
  RulesArguments rules;
  std::vector<std::uint32_t> why;
  std::vector<std::uint64_t> step;
  std::string dot, json;
  bool output_is_named = false, force = false;
  bool no_schedule = false, quiet = false, accept_partial = false, whole_segments = false, one_kind = false;
};

// Writes the schedule; if the user has not named the file, under another name than a foreign file's. Returns the name.
std::string write_schedule(const Arguments& arguments, const std::string& text) {
  if (arguments.output_is_named) {
    write_named(arguments.output, text, FileKind::schedule, arguments.force);
    return arguments.output;
  }
  const WrittenFile written = write_own_file(arguments.output, text, FileKind::schedule,
                                             arguments.force ? Taken::replace : Taken::another_name);
  if (written.error != 0) throw std::system_error(written.error, std::generic_category(), arguments.output);
  if (!written.why_other.empty())
    complain(left_alone(arguments.output, written.why_other) + ": the schedule is " + written.path, 0);
  return written.path;
}

// A number of bytes, with or without K, M, G or T after it; nothing if the text is not one.
std::optional<std::uint64_t> bytes_of(std::string_view text) {
  std::uint64_t bytes = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || text.empty()) return std::nullopt;
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.empty()) return bytes;
  constexpr std::string_view kUnits = "KMGT";
  std::size_t power = kUnits.find(unit.front());
  if (unit.size() != 1 || power == kUnits.npos) return std::nullopt;
  auto shift = static_cast<unsigned>(10 * (power + 1));
  if (bytes > ~std::uint64_t{0} >> shift) return std::nullopt;
  return bytes << shift;
}

// Fills in `options`. Empty, or what is wrong with the arguments.
std::string read_options(const Arguments& arguments, AnalysisOptions& options) {
  options.policy = arguments.policy;
  options.max_lanes = arguments.max_streams;
  options.accept_partial = arguments.accept_partial;
  options.start_early = !arguments.whole_segments;
  options.one_kind = arguments.one_kind;
  options.trust = *trust_of(arguments.trust);
  arguments.rules.read(options.rules);
  if (!arguments.rules.files.empty() && options.trust < Evidence::declared)
    complain(
        "--rules: what only a rule says that a kernel reads and writes is not believed; --trust declared believes it",
        0);
  if (!arguments.step.empty()) options.step = StepPlace{arguments.step[0], arguments.step[1], 0};
  if (arguments.memory_limit.empty()) return {};
  options.memory_limit = bytes_of(arguments.memory_limit);
  return options.memory_limit
             ? std::string()
             : "--memory-limit: " + arguments.memory_limit + " is not a number of bytes, such as 4096, 512K or 2G";
}

// Why one of the output files must not be written; empty if all may be.
std::string why_not_writable(const Arguments& arguments) {
  const bool names_schedule = arguments.output_is_named && !arguments.no_schedule && arguments.why.empty();
  for (const auto& [path, kind] :
       {std::pair(names_schedule ? arguments.output : std::string(), FileKind::schedule),
        std::pair(arguments.json, FileKind::report), std::pair(arguments.dot, FileKind::dot)})
    if (std::string why = why_refused(path, kind, arguments.force); !why.empty()) return why;
  return {};
}

int explain(const Arguments& arguments, const Analysis& analysis) {
  for (std::uint32_t op : arguments.why)
    if (op >= analysis.step.period)
      return complain(
          "--why: the step has ops 0 to " + std::to_string(analysis.step.period - 1) + ", not " + std::to_string(op),
          kExitInput);
  print(explain_order(analysis, arguments.why[0], arguments.why[1]));
  return kExitOk;
}

// Checks the schedule and writes it. Returns the exit status, `done` if all went well.
int make_schedule(const Arguments& arguments, const Analysis& analysis, int done) {
  const std::string text = schedule_text(build_schedule(analysis));
  const CheckResult checked = check_schedule(analysis, text, arguments.output);
  if (checked.unordered) {
    std::vector<const StepReading*> kinds{&analysis};
    for (const StepAnalysis& other : analysis.others) kinds.push_back(&other);
    return complain(arguments.trace + ": a defect of nimble-analyze, so no schedule is written: " +
                        unordered_text(kinds, *checked.unordered),
                    kExitFailure);
  }
  const std::string output = write_schedule(arguments, text);
  if (arguments.quiet) return done;
  print("\nWritten: " + output + "\n");
  if (analysis.cut.segments.segments.empty())
    print("No two ops of this step can be put into one graph, so the schedule gains nothing.\n");
  else
    print("Next:    NIMBLE_MODE=replay NIMBLE_SCHEDULE=" + output +
          " LD_PRELOAD=libnimble.so <program>\n"
          "or:      nimble run --mode replay --schedule " +
          output + " -- <program>\n");
  return done;
}

int run(const Arguments& arguments) {
  AnalysisOptions options;
  if (const std::string wrong = read_options(arguments, options); !wrong.empty()) return complain(wrong, kExitInput);
  // Before anything that takes time.
  if (const std::string why = why_not_writable(arguments); !why.empty()) return complain(why, kExitFailure);
  const Analysis analysis = analyze_recording(arguments.trace, options);

  if (!arguments.json.empty()) write_named(arguments.json, json_report(analysis), FileKind::report, arguments.force);
  if (analysis.step.period == 0) {
    if (!arguments.quiet) print(text_report(analysis));
    return complain(arguments.trace + ": no step found: " + analysis.plan.why_no_schedule, analysis.plan.status);
  }
  if (!arguments.dot.empty()) write_named(arguments.dot, dot_text(analysis), FileKind::dot, arguments.force);
  if (!arguments.why.empty()) return explain(arguments, analysis);
  if (!arguments.quiet) print(text_report(analysis));
  for (const EvidenceConflict& conflict : analysis.evidence.conflicts)
    complain(arguments.trace + ": " + conflict_text(analysis, conflict), kExitConflict);
  const int done = analysis.evidence.conflicts.empty() ? kExitOk : kExitConflict;
  if (arguments.no_schedule) return done;
  if (analysis.plan.status != kExitOk)
    return complain(arguments.trace + ": no schedule: " + analysis.plan.why_no_schedule, analysis.plan.status);
  return make_schedule(arguments, analysis, done);
}

// Returns the option --output.
const CLI::Option* add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("trace", arguments.trace, "The trace, as recorded with NIMBLE_MODE=record")
      ->type_name("FILE")
      ->required();
  CLI::Option* const output = app.add_option("-o,--output", arguments.output, "Where to write the schedule")
                                  ->type_name("FILE")
                                  ->capture_default_str();
  app.add_flag("--force", arguments.force, "Replace files that were not written by Nimble");
  app.add_option("--policy", arguments.policy, "How ops are assigned to streams")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kPolicyNames), std::end(kPolicyNames))))
      ->capture_default_str();
  app.add_option("--max-streams", arguments.max_streams, "The most streams that the policy cost uses")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--memory-limit", arguments.memory_limit,
                 "The most memory that the step's own objects may take, in bytes or with K, M, G, T after the number");
  app.add_flag("--one-kind", arguments.one_kind, "Schedule only the kind of step that does the most work");
  app.add_flag("--whole-segments", arguments.whole_segments,
               "Do not cut segments just so that the GPU starts while the host is still issuing");
  arguments.rules.add_to(app);
  app.add_flag_callback(
      "--print-rules",
      [] {
        print(shipped_rules_text());
        throw CLI::Success();
      },
      "Print the rules that come with nimble-analyze, and exit");
  app.add_option("--trust", arguments.trust, "The weakest evidence to trust on what ops read and write")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTrustNames), std::end(kTrustNames))))
      ->capture_default_str();
  app.add_option("--why", arguments.why, "Explain why two ops of the step are ordered or not, and write no schedule")
      ->expected(2);
  app.add_option("--step", arguments.step,
                 "The step, by the seq of its first op and of its last, instead of searching for one")
      ->expected(2);
  app.add_option("--dot", arguments.dot, "Write the dependencies as a graph for Graphviz")->type_name("FILE");
  app.add_option("--json", arguments.json, "Write the report as JSON")->type_name("FILE");
  app.add_flag("--accept-partial", arguments.accept_partial,
               "Write a schedule even if the recorder is known to have missed work");
  app.add_flag("--no-schedule", arguments.no_schedule, "Only report");
  app.add_flag("--quiet", arguments.quiet, "Print no report");
  app.footer(
      subcommands_text() +
      "\nExit status: 0 done, 1 failed, 2 bad input or usage, 3 no step found, 4 the step cannot be scheduled, 5 done, "
      "but evidence contradicts itself.");
  return output;
}

}  // namespace

int analyze_command(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Finds the step that a traced program repeats, reports on it, and writes a schedule for replay.");
  app.name("nimble-analyze");
  app.set_version_flag("--version", std::string("nimble-analyze ") + kVersion);
  const CLI::Option* const output = add_options(app, arguments);
  int status = kExitOk;
  if (!parse(app, argc, argv, status, {.subcommands = described_subcommands(), .words = {}})) return status;
  arguments.output_is_named = output->count() > 0;
  return run(arguments);
}

}  // namespace nimble::analyzer
