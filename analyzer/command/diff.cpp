#include "analyzer/command/diff.h"

#include <cstddef>
#include <string>

#include "analyzer/base/errors.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/find_recording.h"
#include "analyzer/diff/step_diff.h"
#include "nimble/internal/files/written_file.h"

namespace nimble::analyzer {
namespace {

struct DiffArguments {
  std::string first, second, json;
  EvidenceArguments evidence;
  std::size_t most = 15;
  bool force = false;
};

int run(const DiffArguments& arguments) {
  const AnalysisOptions options = arguments.evidence.options();
  if (const std::string why = why_refused(arguments.json, FileKind::diff, arguments.force); !why.empty())
    return complain(why, kExitFailure);
  const Analysis first = analyze_recording(arguments.first, options);
  const Analysis second = analyze_recording(arguments.second, options);
  for (const Analysis* each : {&first, &second})
    if (each->step.period == 0)
      return complain(each->input.file->path + ": no step found: " + each->plan.why_no_schedule, kExitNoStep);
  const StepDiff diff = diff_steps(first, second, DeviceModel());
  if (!arguments.json.empty())
    write_named(arguments.json, diff_json(first, second, diff), FileKind::diff, arguments.force);
  print(diff_text(first, second, diff, arguments.most));
  return kExitOk;
}

}  // namespace

int diff_command(int argc, char** argv) {
  DiffArguments arguments;
  CLI::App app("Prints what is different between the steps of two traces: figures, ops, and their order.");
  app.name("nimble-analyze diff");
  app.add_option("first", arguments.first, "A trace, as recorded with NIMBLE_MODE=record")
      ->type_name("FILE")
      ->required();
  app.add_option("second", arguments.second, "Another one")->type_name("FILE")->required();
  app.add_option("--most", arguments.most, "The most ops and dependencies to print")
      ->check(CLI::Range(1u, 100000u))
      ->capture_default_str();
  arguments.evidence.add_to(app);
  app.add_option("--json", arguments.json, "Write all differences as JSON")->type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace a file that was not written by Nimble");
  app.footer(
      "Exit status: 0 done, whether or not there are differences, 1 failed, 2 bad input or usage, 3 no step found.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? run(arguments) : status;
}

}  // namespace nimble::analyzer
