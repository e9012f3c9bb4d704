// nimble-replay: runs a step saved as a bundle, without its program. See docs/reference/nimble-replay.md.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>

#include "analyzer/base/errors.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "analyzer/rules/shipped_rules.h"
#include "nimble/internal/command/describe_command.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/written_file.h"
#include "nimble/internal/version.h"
#include "replayer/bundle/process/live_driver.h"
#include "replayer/bundle/run/by_schedule.h"
#include "replayer/bundle/run/report.h"
#include "replayer/bundle/run/runs.h"
#include "replayer/bundle/run/stage.h"
#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/heap.h"
#include "replayer/bundle/saved/recorded_step.h"
#include "replayer/schedule/schedule_reader.h"

namespace {

using namespace nimble;
using namespace nimble::bundle;
using analyzer::kPolicyNames;

// Documented in docs/reference/nimble-replay.md.
enum ExitStatus : int { kExitOk = 0, kExitDiffers = 1, kExitInput = 2, kExitRefused = 3, kExitNoSchedule = 4 };

struct Arguments {
  std::string folder;
  std::vector<std::string> policies;
  std::vector<std::string> schedules;
  std::uint32_t repeat = 20, warmup = 3;
  int device = 0;
  std::vector<std::string> rules;
  bool no_shipped_rules = false, quiet = false;
  std::string trust = std::string(name(analyzer::kDefaultTrust));
  std::uint32_t max_streams = analyzer::kDefaultMaxLanes;
  std::string json;
  bool force = false;
};

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "nimble-replay: %s\n", message.c_str());
  return status;
}

// A schedule to run under: of one kind of step, or of several, one of which may be the bundle's.
struct Candidate {
  std::string name, source;  // `source` as errors name it
  std::vector<Schedule> schedules;
};

// Runs one way. If that fails the way's row says why; earlier measurements stand. Returns the status; kExitDiffers if
// the driver failed, after which nothing else may run.
template <class Function>
int attempt(WayResult& way, Function function) {
  const auto failed = [&](const std::exception& error, int status) {
    way.failure = error.what();
    way.times.clear();
    return complain(way.name + ": " + way.failure, status);
  };
  try {
    function();
    return way.difference ? kExitDiffers : kExitOk;
  } catch (const DriverError& error) {
    return failed(error, kExitDiffers);
  } catch (const Refused& error) {
    return failed(error, kExitRefused);
  } catch (const analyzer::InputError& error) {
    return failed(error, kExitInput);
  }
}

void run_schedule(Stage& stage, Candidate candidate, const Arguments& arguments, WayResult& way) {
  stage.contents.restore(true);  // calls are compared with the content of copies at the step's start
  std::unique_ptr<BySchedule> run;
  for (Schedule& schedule : candidate.schedules) {
    way.arena_bytes = schedule.arena_bytes;
    const bool last = &schedule == &candidate.schedules.back();
    try {
      run = std::make_unique<BySchedule>(stage.driver, stage.files.bundle(), stage.step, stage.payloads,
                                         stage.placement, stage.ops, std::move(schedule), candidate.source);
      break;
    } catch (const analyzer::InputError&) {
      if (last) throw;  // another kind of step may be the bundle's
    }
  }
  way.streams = run->lanes();
  way.graphs = run->graphs();
  stage.measure(*run, arguments.warmup, arguments.repeat, way);
}

std::string read_text(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  std::string text;
  char part[1 << 16];
  while (const std::size_t bytes = file ? std::fread(part, 1, sizeof part, file.get()) : 0) text.append(part, bytes);
  if (!file || std::ferror(file.get())) throw analyzer::InputError(path, 0, "", std::strerror(errno));
  return text;
}

// The file for the JSON result. Opened before anything runs, so that a wrong name costs no time.
class JsonFile {
 public:
  JsonFile(const std::string& path, bool force) : path_(path), force_(force) {
    if (path.empty() || path == "-") return;
    if (const std::string why = why_refused(path, FileKind::replay_report, force); !why.empty())
      throw std::runtime_error(why);
    if (const int error = file_.open(path, /*through_links=*/true)) fail(error);
  }
  ~JsonFile() { file_.discard(); }
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  void write(const std::string& text) {
    if (path_ == "-") {
      if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) fail(errno);
      return;
    }
    if (path_.empty()) return;
    int error = file_.write(text.data(), text.size());
    if (error == 0)
      error = taken_of_named(path_, force_) == Taken::replace ? file_.place_by_force()
                                                              : file_.place_at_wanted(FileKind::replay_report);
    if (!file_.why_other().empty()) throw std::runtime_error(refusal_of_named(path_, file_.why_other()));
    if (error != 0) fail(error);
  }

 private:
  [[noreturn]] void fail(int error) const { throw std::runtime_error(path_ + ": " + std::strerror(error)); }

  const std::string path_;
  const bool force_;
  OwnFile file_;
};

std::vector<std::string> policies_of(const Arguments& arguments) {
  std::vector<std::string> policies;
  for (const std::string& policy : arguments.policies) {
    if (policy == "all") {
      policies.assign(std::begin(kPolicyNames), std::end(kPolicyNames));
      break;
    }
    if (policy != "program" && std::find(policies.begin(), policies.end(), policy) == policies.end())
      policies.push_back(policy);
  }
  return policies;
}

// The policy under which the step was fastest; none if the program's own order was.
std::string fastest_policy(const ReplayReport& report) {
  std::string best;
  double least = 0;
  for (const WayResult& way : report.ways) {
    std::vector<double> values;
    for (const RunTime& time : way.times) values.push_back(time.gpu_us);
    const double median = percentile(std::move(values), 0.5);
    if (&way != &report.ways.front() && median >= least) continue;
    least = median;
    const auto* const policy = std::find(std::begin(kPolicyNames), std::end(kPolicyNames), way.key);
    best = policy == std::end(kPolicyNames) ? std::string() : way.key;
  }
  return best;
}

ReplayReport report_of(const Stage& stage, const Arguments& arguments) {
  ReplayReport report;
  const Bundle& bundle = stage.files.bundle();
  report.folder = arguments.folder;
  report.program = stage.step.trace().program;
  report.recorded_on = stage.step.trace().device;
  report.device = stage.driver.device_name();
  report.simulated = stage.driver.simulated();
  report.ops = bundle.ops;
  for (std::uint32_t i = 0; i < stage.step.ops(); ++i) report.launches += stage.step.op(i).kind == CallKind::launch;
  report.objects = bundle.objects.size();
  report.device_bytes = stage.placement.device_bytes();
  report.host_bytes = stage.placement.host_bytes();
  report.first_seq = bundle.first_seq;
  report.last_seq = bundle.last_seq;
  report.moved = stage.placement.any_moved();
  report.hidden = bundle.hidden;
  return report;
}

// All ways in turn, until the driver fails. Returns the worst status.
int run_all(Stage& stage, std::vector<Candidate> candidates, const Arguments& arguments, ReplayReport& report) {
  int status = kExitOk;
  bool usable = true;
  const auto run_one = [&](const std::string& name, const std::string& key, const auto& function) {
    WayResult& way = report.ways.emplace_back();
    way.name = name;
    way.key = key;
    const int mine = attempt(way, [&] { function(way); });
    if (mine != kExitOk && (status == kExitOk || mine < status)) status = mine;
    usable = mine != kExitDiffers || way.failure.empty();
  };
  run_one("program order", "program", [&](WayResult& way) {
    way.streams = static_cast<std::uint32_t>(stage.ops.streams().size());
    InOrder in_order(stage.driver, stage.files.bundle(), stage.step, stage.ops);
    stage.measure(in_order, arguments.warmup, arguments.repeat, way);
  });
  for (Candidate& candidate : candidates) {
    if (!usable) return status;
    run_one(candidate.name, candidate.name,
            [&](WayResult& way) { run_schedule(stage, std::move(candidate), arguments, way); });
  }
  for (const std::string& policy : policies_of(arguments)) {
    if (!usable) return status;
    analyzer::AnalysisOptions with_policy = stage.step.options();
    with_policy.policy = policy;
    const analyzer::Analysis analysis = analyze(analyzer::read_trace(stage.files.trace_path()), with_policy);
    if (analysis.plan.status != analyzer::kExitOk) {
      report.why_no_schedule = analysis.plan.why_no_schedule;
      break;
    }
    // Goes through its text, so that the schedule passes the checks of its reader.
    const std::string source = "the schedule of policy " + policy;
    Candidate made{policy, source, {}};
    made.schedules.push_back(parse_schedule(analyzer::schedule_text(build_schedule(analysis)), source));
    run_one(policy, policy, [&](WayResult& way) { run_schedule(stage, std::move(made), arguments, way); });
  }
  return status;
}

int run(const Arguments& arguments) {
  const BundleFiles files(arguments.folder);
  analyzer::AnalysisOptions options;
  options.trust = *analyzer::trust_of(arguments.trust);
  options.max_lanes = arguments.max_streams;
  options.start_early = false;  // it gains the program's time between calls, which there is none of here
  for (const std::string& path : arguments.rules) options.rules.read(path);
  if (!arguments.no_shipped_rules) add_shipped_rules(options.rules);
  const RecordedStep step(files, options);
  check_heap(files, step);
  std::vector<Candidate> candidates;
  for (const std::string& path : arguments.schedules)
    candidates.push_back(
        {path, path, schedules_for(parse_schedule(read_text(path), path), step, files.bundle(), path)});
  // Before anything runs: missing memory may make a kernel fail.
  for (const std::string& note : files.bundle().hidden) complain("not in the bundle: " + note, kExitOk);
  Stage stage(files, step, arguments.device);
  JsonFile json(arguments.json, arguments.force);

  ReplayReport report = report_of(stage, arguments);
  const int status = run_all(stage, std::move(candidates), arguments, report);
  json.write(json_of(report));
  const bool quiet = arguments.quiet || arguments.json == "-";
  const WayResult& own = report.ways.front();
  if (!own.failure.empty() && own.runs == 0) return status;  // nothing was measured
  if (!quiet) std::fputs(text_of(report).c_str(), stdout);
  for (const WayResult& way : report.ways)
    if (quiet && way.difference && way.failure.empty()) complain("not as recorded: " + text_of(way), status);
  if (status == kExitOk && !report.why_no_schedule.empty())
    return complain("no schedule: " + report.why_no_schedule, kExitNoSchedule);
  if (quiet || status != kExitOk) return status;
  if (report.ways.size() == 1)
    std::printf("\nNext:    nimble-replay %s --policy all\n", arguments.folder.c_str());
  else if (const std::string best = fastest_policy(report); !best.empty())
    std::printf("\nNext:    nimble-analyze %s/trace.json --step %llu %llu --policy %s\n", arguments.folder.c_str(),
                static_cast<unsigned long long>(report.first_seq), static_cast<unsigned long long>(report.last_seq),
                best.c_str());
  return status;
}

int main_of_replay(int argc, char** argv) {
  Arguments arguments;
  std::vector<std::string> policies{"program", "all"};
  policies.insert(policies.end(), std::begin(kPolicyNames), std::end(kPolicyNames));
  CLI::App app(
      "Runs a step that was saved with NIMBLE_CAPTURE=bundle, without its program: in the program's order and under\n"
      "schedules. Compares memory at its end with what was recorded, byte for byte, and times it.");
  app.name("nimble-replay");
  app.set_version_flag("--version", std::string("nimble-replay ") + kVersion);
  app.add_option("bundle", arguments.folder, "The folder that NIMBLE_CAPTURE=bundle made")
      ->type_name("DIR")
      ->required();
  app.add_option("--policy", arguments.policies,
                 "Also under the schedule of this policy; all: of each. Repeatable. The program's own order always "
                 "comes first")
      ->check(CLI::IsMember(policies))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--schedule", arguments.schedules, "Also under this schedule; repeatable")
      ->type_name("FILE")
      ->expected(1);
  app.add_option("--repeat", arguments.repeat, "How many runs of each to time")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  app.add_option("--warmup", arguments.warmup,
                 "How many untimed runs of each to make first; their results are compared, too")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  app.add_option("--device", arguments.device, "The device to run on")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--rules", arguments.rules, "For policies: a file that tells what kernels read and write; repeatable")
      ->type_name("FILE")
      ->expected(1);
  app.add_flag("--no-shipped-rules", arguments.no_shipped_rules,
               "For policies: leave out the rules that come with Nimble");
  app.add_option("--trust", arguments.trust, "For policies: the weakest evidence to trust on what ops read and write")
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(analyzer::kTrustNames), std::end(analyzer::kTrustNames))))
      ->capture_default_str();
  app.add_option("--max-streams", arguments.max_streams, "The most streams that the policy cost uses")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--json", arguments.json,
                 "Write the results as JSON to this file; -: to standard output, instead of the table")
      ->type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace a file that was not written by Nimble");
  app.add_flag("--quiet", arguments.quiet, "Print no table");
  app.footer(
      "Exit status: 0 all as recorded, 1 memory differs or the driver failed, 2 bad input or usage, 3 the step cannot "
      "be\n"
      "run here, 4 no schedule can serve it.");
  add_describe(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // the help or the version was asked for
    return complain(std::string(error.what()) + "; see nimble-replay --help", kExitInput);
  }
  return run(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return main_of_replay(argc, argv);
  } catch (const analyzer::InputError& error) {
    return complain(error.what(), kExitInput);
  } catch (const ScheduleError& error) {
    return complain(error.what(), kExitInput);
  } catch (const Refused& refused) {
    return complain(refused.what(), kExitRefused);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kExitDiffers);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitDiffers);
  }
}
