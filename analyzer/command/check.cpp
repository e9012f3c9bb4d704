#include "analyzer/command/check.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/base/text.h"
#include "analyzer/check/checker.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/find_recording.h"
#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path, 0, "", std::string("cannot be opened: ") + std::strerror(errno));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) throw InputError(path, 0, "", "cannot be read");
  return text;
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
  const std::vector<StepReading> readings = read_steps(read_recording(arguments.trace), options);
  const Step& step = readings.front().step;
  if (step.period == 0) return complain(arguments.trace + ": no step found: " + step.why_none, kExitNoStep);
  std::vector<const StepReading*> kinds;
  for (const StepReading& kind : readings) kinds.push_back(&kind);
  const CheckResult result = check_schedule(kinds, schedule, arguments.schedule);
  if (result.unordered)
    return complain(arguments.schedule + ": " + unordered_text(kinds, *result.unordered), kExitFailure);
  if (!arguments.quiet)
    print(arguments.schedule + ": every two of its " + plural(step.period, "op") +
          " that conflict are ordered; looked up: " + plural(result.pairs, "pair") + " in " +
          plural(result.segments, "segment") + "\n");
  return kExitOk;
}

}  // namespace

int check_command(int argc, char** argv) {
  CheckArguments arguments;
  CLI::App app("Checks that a schedule orders every two ops of the step that touch the same memory.");
  app.name("nimble-analyze check");
  app.add_option("trace", arguments.trace, "The trace that the schedule was made from")->type_name("FILE")->required();
  app.add_option("schedule", arguments.schedule, "The schedule")->type_name("FILE")->required();
  arguments.rules.add_to(app);
  app.add_option("--trust", arguments.trust,
                 "The weakest evidence to trust; by default that which the schedule was made with")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTrustNames), std::end(kTrustNames))));
  app.add_flag("--quiet", arguments.quiet, "Print nothing if all is well");
  app.footer("Exit status: 0 all ordered, 1 two ops are not or it failed, 2 bad input or usage, 3 no step found.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? check(arguments) : status;
}

}  // namespace nimble::analyzer
