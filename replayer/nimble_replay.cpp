// nimble-replay: runs a step that was saved as a bundle, without its program. See docs/nimble-replay.md.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>

#include "analyzer/analysis.h"
#include "analyzer/describe.h"
#include "analyzer/errors.h"
#include "analyzer/rules/shipped_rules.h"
#include "analyzer/schedule_builder.h"
#include "analyzer/schedule_writer.h"
#include "nimble/version.h"
#include "replayer/bundle/bundle_reader.h"
#include "replayer/bundle/contents.h"
#include "replayer/bundle/live_driver.h"
#include "replayer/bundle/live_ops.h"
#include "replayer/bundle/payloads.h"
#include "replayer/bundle/placement.h"
#include "replayer/bundle/recorded_step.h"
#include "replayer/bundle/report.h"
#include "replayer/bundle/runs.h"
#include "replayer/schedule_reader.h"

namespace {

using namespace nimble;
using namespace nimble::bundle;
using analyzer::kPolicyNames;

// Documented in docs/nimble-replay.md.
enum ExitStatus : int { kExitOk = 0, kExitDiffers = 1, kExitInput = 2, kExitRefused = 3, kExitNoSchedule = 4 };

struct Arguments {
  std::string folder;
  std::vector<std::string> policies;
  std::vector<std::string> schedules;
  std::uint32_t repeat = 20, warmup = 3;
  int device = 0;
  std::vector<std::string> rules;
  bool no_shipped_rules = false, quiet = false;
  std::string trust = std::string(analyzer::name(analyzer::kDefaultTrust));
  std::uint32_t max_streams = analyzer::kDefaultMaxLanes;
  std::string json;
};

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "nimble-replay: %s\n", message.c_str());
  return status;
}

// All that the ways to run the step have in common.
struct Stage {
  Stage(const BundleFiles& files_, const RecordedStep& step_, int device)
      : files(files_),
        step(step_),
        payloads(files, step),
        driver(device),
        placement(driver, files.bundle()),
        modules(load()),
        ops(driver, files, step, payloads, add_globals(), modules),
        contents(driver, files, step, payloads, placement, ops) {}

  std::vector<CUmodule> load() {
    std::vector<CUmodule> loaded;
    for (std::uint32_t i = 0; i < files.bundle().images.size(); ++i) {
      CUmodule module = nullptr;
      LiveDriver::check(driver.cuModuleLoadData_(&module, files.image(i).c_str()),
                        ("for the code in " + files.bundle().images[i].file).c_str());
      loaded.push_back(module);
    }
    return loaded;
  }
  const Placement& add_globals() {
    placement.add_globals(files.bundle(), modules);
    return placement;
  }

  const BundleFiles& files;
  const RecordedStep& step;
  const Payloads payloads;
  LiveDriver driver;
  Placement placement;
  std::vector<CUmodule> modules;
  LiveOps ops;
  Contents contents;
};

// Runs the step again and again, each time from the same memory, until it ends in another than was recorded.
void measure(Stage& stage, Run& run, const Arguments& arguments, WayResult& way) {
  const std::uint32_t runs = arguments.warmup + arguments.repeat;
  for (way.runs = 1;; ++way.runs) {
    const bool first = way.runs == 1, last = way.runs == runs;
    stage.contents.restore(first);
    const RunTime time = run.run();
    way.difference = stage.contents.compare(first || last);
    if (way.difference) return;
    if (way.runs > arguments.warmup) way.times.push_back(time);
    if (last) return;
  }
}

void run_schedule(Stage& stage, Schedule schedule, const std::string& name, const std::string& source,
                  const Arguments& arguments, ReplayReport& report) {
  WayResult& way = report.ways.emplace_back();
  way.name = way.key = name;
  way.arena_bytes = schedule.arena_bytes;
  stage.contents.restore(true);  // what is compared with calls is what copies carry at the step's start
  BySchedule run(stage.driver, stage.files.bundle(), stage.step, stage.placement, stage.ops, std::move(schedule),
                 source);
  way.streams = run.lanes();
  way.graphs = run.graphs();
  measure(stage, run, arguments, way);
}

void write_json(const std::string& path, const std::string& text) {
  std::FILE* const file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
  const bool good = file && std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int failure = errno;
  if (file && file != stdout) std::fclose(file);
  if (!good) throw std::runtime_error(path + ": " + std::strerror(failure));
}

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

// Of the policies: the one under which the step took least; none where the program's own order did.
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

int run(const Arguments& arguments) {
  const BundleFiles files(arguments.folder);
  analyzer::AnalysisOptions options;
  options.trust = *analyzer::trust_of(arguments.trust);
  options.max_lanes = arguments.max_streams;
  options.start_early = false;  // what it gains is the program's time between its calls, which is not here
  for (const std::string& path : arguments.rules) options.rules.read(path);
  if (!arguments.no_shipped_rules) add_shipped_rules(options.rules);
  const RecordedStep step(files, options);
  // Before anything runs: what is not there may be the end of a kernel.
  for (const std::string& note : files.bundle().hidden) complain("not in the bundle: " + note, kExitOk);
  Stage stage(files, step, arguments.device);

  ReplayReport report;
  const Bundle& bundle = files.bundle();
  report.folder = arguments.folder;
  report.program = step.trace().program;
  report.recorded_on = step.trace().device;
  report.device = stage.driver.device_name();
  report.simulated = stage.driver.simulated();
  report.ops = bundle.ops;
  for (std::uint32_t i = 0; i < step.ops(); ++i) report.launches += step.op(i).kind == CallKind::launch;
  report.objects = bundle.objects.size();
  report.device_bytes = stage.placement.device_bytes();
  report.host_bytes = stage.placement.host_bytes();
  report.first_seq = bundle.first_seq;
  report.last_seq = bundle.last_seq;
  report.moved = stage.placement.any_moved();
  report.hidden = bundle.hidden;

  {
    WayResult& way = report.ways.emplace_back();
    way.name = "program order";
    way.key = "program";
    way.streams = static_cast<std::uint32_t>(stage.ops.streams().size());
    InOrder in_order(stage.driver, step, stage.ops);
    measure(stage, in_order, arguments, way);
  }
  for (const std::string& path : arguments.schedules)
    run_schedule(stage, read_schedule(path), path, path, arguments, report);
  for (const std::string& policy : policies_of(arguments)) {
    analyzer::AnalysisOptions with_policy = step.options();
    with_policy.policy = policy;
    const analyzer::Analysis analysis = analyze(analyzer::read_trace(files.trace_path()), with_policy);
    if (analysis.status != analyzer::kExitOk) {
      report.why_no_schedule = analysis.why_no_schedule;
      break;
    }
    // By way of its text, so that what is run has passed the checks of its reader.
    const std::string source = "the schedule of policy " + policy;
    run_schedule(stage, parse_schedule(analyzer::schedule_text(build_schedule(analysis)), source), policy, source,
                 arguments, report);
  }

  if (!arguments.json.empty()) write_json(arguments.json, json_of(report));
  const bool quiet = arguments.quiet || arguments.json == "-";
  if (!quiet) std::fputs(text_of(report).c_str(), stdout);
  int status = kExitOk;
  for (const WayResult& way : report.ways) {
    if (!way.difference) continue;
    status = kExitDiffers;
    if (quiet) complain("not as recorded: " + text_of(way), status);
  }
  if (status == kExitOk && !report.why_no_schedule.empty())
    return complain("no schedule: " + report.why_no_schedule, kExitNoSchedule);
  if (quiet || status != kExitOk) return status;
  if (report.ways.size() == 1)
    std::printf("\nNext:    nimble-replay %s --policy all\n", arguments.folder.c_str());
  else if (const std::string best = fastest_policy(report); !best.empty())
    std::printf("\nNext:    nimble-analyze %s/trace.json --policy %s\n", arguments.folder.c_str(), best.c_str());
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
  app.add_option("bundle", arguments.folder, "The folder that NIMBLE_CAPTURE=bundle made")->required();
  app.add_option(
         "--policy", arguments.policies,
         "Also under the schedule of this policy; all: of each. May be given again. The program's own order always "
         "comes first")
      ->check(CLI::IsMember(policies))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--schedule", arguments.schedules, "Also under this schedule; may be given again")->expected(1);
  app.add_option("--repeat", arguments.repeat, "How many runs of each to time")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  app.add_option("--warmup", arguments.warmup,
                 "How many runs of each to make before, which are compared, but not timed")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  app.add_option("--device", arguments.device, "The device to run on")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--rules", arguments.rules,
                 "For policies: a file that tells what kernels read and write; may be given again")
      ->expected(1);
  app.add_flag("--no-shipped-rules", arguments.no_shipped_rules,
               "For policies: leave out the rules that come with Nimble");
  app.add_option("--trust", arguments.trust, "For policies: the weakest evidence to believe of what ops read and write")
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(analyzer::kTrustNames), std::end(analyzer::kTrustNames))))
      ->capture_default_str();
  app.add_option("--max-streams", arguments.max_streams, "The most streams that the policy cost uses")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--json", arguments.json,
                 "Write what was found out as JSON to this file; -: to standard output, instead of the table");
  app.add_flag("--quiet", arguments.quiet, "Print no table");
  app.footer(
      "Exit status: 0 all as recorded, 1 memory differs or the driver failed, 2 bad input or usage, 3 the step cannot "
      "be\n"
      "run here, 4 no schedule can serve it.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitInput;
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
