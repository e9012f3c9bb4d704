// nimble-analyze: reads a trace, reports on its step, and writes a schedule. See docs/reference/nimble-analyze.md.

#include <CLI/CLI.hpp>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/check/checker.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "analyzer/report/describe.h"
#include "analyzer/report/dot.h"
#include "analyzer/report/report.h"
#include "analyzer/report/why.h"
#include "analyzer/rules/shipped_rules.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/part_file.h"
#include "nimble/internal/files/written_file.h"
#include "nimble/internal/version.h"

namespace {

using namespace nimble::analyzer;

// Which rules to go by.
struct RulesArguments {
  std::vector<std::string> files;
  bool no_shipped = false;

  void add_to(CLI::App& app) {
    app.add_option("--rules", files, "A file that tells what kernels read and write; may be given again")->expected(1);
    app.add_flag("--no-shipped-rules", no_shipped, "Leave out the rules that come with nimble-analyze");
  }
  void read(Rules& rules) const {
    for (const std::string& path : files) rules.read(path);
    if (!no_shipped) add_shipped_rules(rules);
  }
};

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

// Writes a file whose name the user has given.
void write_file(const std::string& path, const std::string& text, nimble::FileKind kind, bool force) {
  const nimble::WrittenFile written = nimble::write_own_file(path, text, kind, nimble::taken_of_named(path, force));
  if (!written.why_other.empty()) throw std::runtime_error(nimble::refusal_of_named(path, written.why_other));
  if (written.error != 0) throw std::system_error(written.error, std::generic_category(), path);
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw std::system_error(errno, std::generic_category(), "standard output");
}

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "nimble-analyze: %s\n", message.c_str());
  return status;
}

// Writes the schedule: where the user has not said where, beside what is not ours. Returns the file's name.
std::string write_schedule(const Arguments& arguments, const std::string& text) {
  if (arguments.output_is_named) {
    write_file(arguments.output, text, nimble::FileKind::schedule, arguments.force);
    return arguments.output;
  }
  const nimble::WrittenFile written =
      nimble::write_own_file(arguments.output, text, nimble::FileKind::schedule,
                             arguments.force ? nimble::Taken::replace : nimble::Taken::another_name);
  if (written.error != 0) throw std::system_error(written.error, std::generic_category(), arguments.output);
  if (!written.why_other.empty())
    complain(nimble::left_alone(arguments.output, written.why_other) + ": the schedule is " + written.path, 0);
  return written.path;
}

// What there is to read where no trace has this name, as commands: what recordings have left that did not end, and what
// has got another name since the wanted one was somebody else's.
std::vector<std::string> other_traces(const std::string& path) {
  std::vector<std::string> found;
  for (std::uint32_t which = 1; which < nimble::kMostNames; ++which) {
    const std::string name = nimble::name_in_place(path, which);
    if (!nimble::what_is_at(name)) break;
    found.push_back(name);
  }
  for (const nimble::PartFile& part : nimble::parts_of(path)) found.push_back(part.path);
  return found;
}

TraceFile read_recording(const std::string& path) {
  const bool is_there = nimble::what_is_at(path, /*follow=*/true).has_value();
  const std::vector<std::string> others = other_traces(path);
  if (!is_there && others.size() == 1) {
    const std::vector<nimble::PartFile> parts = nimble::parts_of(path);
    const bool is_part = !parts.empty();
    complain(path + " is not there; reading " + others.front() +
                 (!is_part                     ? ", which was recorded in its place"
                  : parts.front().is_written() ? ", which is still being recorded"
                                               : ", which a recording that was broken off has left"),
             0);
    return read_trace(others.front());
  }
  try {
    TraceFile file = read_trace(path);
    for (const nimble::PartFile& part : nimble::parts_of(path)) {
      const auto one = nimble::what_is_at(part.path), other = nimble::what_is_at(path, /*follow=*/true);
      if (one && other && nimble::changed_ns(*one) > nimble::changed_ns(*other))
        complain("newer than " + path + ": " + part.path +
                     ", of a recording that goes on or was broken off. To read it: nimble-analyze " + part.path,
                 0);
    }
    return file;
  } catch (const InputError&) {
    for (const std::string& other : others) complain("there is another recording: nimble-analyze " + other, 0);
    throw;
  }
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path, 0, "", std::string("cannot be opened: ") + std::strerror(errno));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) throw InputError(path, 0, "", "cannot be read");
  return text;
}

// A number of bytes, with or without one of K, M, G, T behind it; nothing where the text is none.
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

std::string unordered_text(const Analysis& first, const Unordered& pair) {
  const Analysis& analysis = pair.kind == 0 ? first : first.others[pair.kind - 1];
  return (pair.kind == 0 ? "op " : "of kind " + std::to_string(pair.kind) + " of step, op ") +
         std::to_string(pair.first) + " (" + describe_op(analysis, pair.first, 40) + ") and op " +
         std::to_string(pair.second) + " (" + describe_op(analysis, pair.second, 40) +
         ") are not ordered by the schedule: " + pair.why;
}

struct CheckArguments {
  std::string trace, schedule, trust;
  RulesArguments rules;
  bool quiet = false;
};

int check(const CheckArguments& arguments) {
  AnalysisOptions options;
  arguments.rules.read(options.rules);
  const ScheduleOrder schedule = read_schedule_order(read_file(arguments.schedule), arguments.schedule);
  options.trust = arguments.trust.empty() ? schedule.trust : *trust_of(arguments.trust);
  Analysis step = read_step(read_recording(arguments.trace), options);
  if (step.step.period == 0) return complain(arguments.trace + ": no step found: " + step.why_no_schedule, step.status);
  CheckResult result = check_schedule(step, schedule, arguments.schedule);
  if (result.unordered)
    return complain(arguments.schedule + ": " + unordered_text(step, *result.unordered), kExitFailure);
  if (!arguments.quiet)
    print(arguments.schedule + ": every two of its " + plural(step.step.period, "op") +
          " that conflict are ordered; looked up: " + plural(result.pairs, "pair") + " in " +
          plural(result.segments, "segment") + "\n");
  return kExitOk;
}

int run(const Arguments& arguments) {
  AnalysisOptions options;
  options.policy = arguments.policy;
  options.max_lanes = arguments.max_streams;
  options.accept_partial = arguments.accept_partial;
  options.start_early = !arguments.whole_segments;
  options.one_kind = arguments.one_kind;
  options.trust = *trust_of(arguments.trust);
  arguments.rules.read(options.rules);
  if (!arguments.step.empty()) options.step = StepPlace{arguments.step[0], arguments.step[1], 0};
  if (!arguments.memory_limit.empty()) {
    options.memory_limit = bytes_of(arguments.memory_limit);
    if (!options.memory_limit)
      return complain("--memory-limit: " + arguments.memory_limit + " is no number of bytes, such as 4096, 512K or 2G",
                      kExitInput);
  }
  // Before anything that takes time.
  const bool writes_schedule = !arguments.no_schedule && arguments.why.empty();
  for (const auto& [path, kind] :
       {std::pair(arguments.output_is_named && writes_schedule ? arguments.output : std::string(),
                  nimble::FileKind::schedule),
        std::pair(arguments.json, nimble::FileKind::report), std::pair(arguments.dot, nimble::FileKind::dot)})
    if (const std::string why = nimble::why_refused(path, kind, arguments.force); !why.empty())
      return complain(why, kExitFailure);
  Analysis analysis = analyze(read_recording(arguments.trace), options);

  if (!arguments.json.empty())
    write_file(arguments.json, json_report(analysis), nimble::FileKind::report, arguments.force);
  if (analysis.step.period == 0) {
    if (!arguments.quiet) print(text_report(analysis));
    return complain(arguments.trace + ": no step found: " + analysis.why_no_schedule, analysis.status);
  }
  if (!arguments.dot.empty()) write_file(arguments.dot, dot_text(analysis), nimble::FileKind::dot, arguments.force);
  if (!arguments.why.empty()) {
    for (std::uint32_t op : arguments.why)
      if (op >= analysis.step.period)
        return complain(
            "--why: the step has ops 0 to " + std::to_string(analysis.step.period - 1) + ", not " + std::to_string(op),
            kExitInput);
    print(explain_order(analysis, arguments.why[0], arguments.why[1]));
    return kExitOk;
  }
  if (!arguments.quiet) print(text_report(analysis));
  for (const EvidenceConflict& conflict : analysis.conflicts)
    complain(arguments.trace + ": " + conflict_text(analysis, conflict), kExitConflict);
  const int done = analysis.conflicts.empty() ? kExitOk : kExitConflict;
  if (arguments.no_schedule) return done;
  if (analysis.status != kExitOk)
    return complain(arguments.trace + ": no schedule: " + analysis.why_no_schedule, analysis.status);

  std::string text = schedule_text(build_schedule(analysis));
  CheckResult checked = check_schedule(analysis, text, arguments.output);
  if (checked.unordered)
    return complain(arguments.trace + ": a defect of nimble-analyze, so no schedule is written: " +
                        unordered_text(analysis, *checked.unordered),
                    kExitFailure);
  const std::string output = write_schedule(arguments, text);
  if (arguments.quiet) return done;
  print("\nWritten: " + output + "\n");
  if (analysis.segments.segments.empty())
    print("No two ops of this step can be put into one graph, so the schedule gains nothing.\n");
  else
    print("Next:    NIMBLE_MODE=replay NIMBLE_SCHEDULE=" + output +
          " LD_PRELOAD=libnimble.so <program>\n"
          "or:      nimble run --mode replay --schedule " +
          output + " -- <program>\n");
  return done;
}

// Reads the command line into what the options were bound to. False, with the exit status, where there is nothing to
// do.
bool parse(CLI::App& app, int argc, char** argv, int& status) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    const bool helped = error.get_exit_code() == 0;  // the help or the version was asked for
    status = helped ? app.exit(error) : complain(std::string(error.what()) + "; see nimble-analyze --help", kExitInput);
    return false;
  }
}

int main_of_check(int argc, char** argv) {
  CheckArguments arguments;
  CLI::App app("Checks that a schedule orders every two ops of the step that touch the same memory.");
  app.name("nimble-analyze check");
  app.add_option("trace", arguments.trace, "The trace that the schedule was made from")->required();
  app.add_option("schedule", arguments.schedule, "The schedule")->required();
  arguments.rules.add_to(app);
  app.add_option("--trust", arguments.trust,
                 "The weakest evidence to believe; by default what the schedule was made with")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTrustNames), std::end(kTrustNames))));
  app.add_flag("--quiet", arguments.quiet, "Print nothing where all is well");
  app.footer("Exit status: 0 all ordered, 1 two ops are not or it failed, 2 bad input or usage, 3 no step found.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? check(arguments) : status;
}

int main_of_analyze(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Finds the step that a traced program repeats, reports on it, and writes a schedule for replay.");
  app.name("nimble-analyze");
  app.set_version_flag("--version", std::string("nimble-analyze ") + nimble::kVersion);
  app.add_option("trace", arguments.trace, "The trace, as recorded with NIMBLE_MODE=record")->required();
  const CLI::Option* const output =
      app.add_option("-o,--output", arguments.output, "Where to write the schedule")->capture_default_str();
  app.add_flag("--force", arguments.force, "Replace files that were not written by Nimble");
  app.add_option("--policy", arguments.policy, "How ops are spread over streams")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kPolicyNames), std::end(kPolicyNames))))
      ->capture_default_str();
  app.add_option("--max-streams", arguments.max_streams, "The most streams that the policy cost uses")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--memory-limit", arguments.memory_limit,
                 "The most memory that the step's own objects may take, in bytes or with K, M, G, T behind the number");
  app.add_flag("--one-kind", arguments.one_kind, "Schedule only the kind of step that does the most work");
  app.add_flag("--whole-segments", arguments.whole_segments,
               "Cut no segment only for the GPU to begin while the host is still issuing");
  arguments.rules.add_to(app);
  app.add_flag_callback(
      "--print-rules",
      [] {
        print(shipped_rules_text());
        throw CLI::Success();
      },
      "Print the rules that come with nimble-analyze, and exit");
  app.add_option("--trust", arguments.trust, "The weakest evidence to believe of what ops read and write")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTrustNames), std::end(kTrustNames))))
      ->capture_default_str();
  app.add_option("--why", arguments.why, "Explain why two ops of the step are ordered or not, and write no schedule")
      ->expected(2);
  app.add_option("--step", arguments.step,
                 "The step, by the seq of its first op and of its last, instead of looking for one")
      ->expected(2);
  app.add_option("--dot", arguments.dot, "Write the dependencies as a graph for Graphviz");
  app.add_option("--json", arguments.json, "Write the report as JSON");
  app.add_flag("--accept-partial", arguments.accept_partial,
               "Write a schedule though the recorder is known to have missed work");
  app.add_flag("--no-schedule", arguments.no_schedule, "Only report");
  app.add_flag("--quiet", arguments.quiet, "Print no report");
  app.footer(
      "Exit status: 0 done, 1 failed, 2 bad input or usage, 3 no step found, 4 the step cannot be scheduled, 5 done, "
      "but "
      "evidence contradicts itself.\n\n"
      "nimble-analyze check TRACE SCHEDULE checks a schedule against its trace; see nimble-analyze check --help.");
  int status = kExitOk;
  if (!parse(app, argc, argv, status)) return status;
  arguments.output_is_named = output->count() > 0;
  return run(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "check") return main_of_check(argc - 1, argv + 1);
    return main_of_analyze(argc, argv);
  } catch (const InputError& error) {
    return complain(error.what(), kExitInput);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kExitFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitFailure);
  }
}
