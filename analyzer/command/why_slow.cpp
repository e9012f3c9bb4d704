#include "analyzer/command/why_slow.h"

#include <cstddef>
#include <string>

#include "analyzer/base/errors.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/find_recording.h"
#include "analyzer/ledger/ledger.h"
#include "nimble/internal/files/written_file.h"

namespace nimble::analyzer {
namespace {

struct WhySlowArguments {
  std::string trace, json;
  EvidenceArguments evidence;
  std::size_t most = 15;
  bool force = false;
};

int run(const WhySlowArguments& arguments) {
  const AnalysisOptions options = arguments.evidence.options();
  if (const std::string why = why_refused(arguments.json, FileKind::ledger, arguments.force); !why.empty())
    return complain(why, kExitFailure);
  const Analysis analysis = analyze_recording(arguments.trace, options);
  if (analysis.step.period == 0)
    return complain(arguments.trace + ": no step found: " + analysis.plan.why_no_schedule, kExitNoStep);
  const DeviceModel device;
  const Ledger ledger = idle_ledger(analysis, device);
  if (ledger.times.repeats == 0) return complain(arguments.trace + ": " + kNoTimes, kExitInput);
  if (!arguments.json.empty())
    write_named(arguments.json, ledger_json(analysis, ledger, device), FileKind::ledger, arguments.force);
  print(ledger_text(analysis, ledger, device, arguments.most));
  return kExitOk;
}

}  // namespace

int why_slow_command(int argc, char** argv) {
  WhySlowArguments arguments;
  CLI::App app("Says for what the GPU is idle or narrow in the step of a trace, and what can be done about it.");
  app.name("nimble-analyze why-slow");
  app.add_option("trace", arguments.trace, "The trace, as recorded with NIMBLE_MODE=record")
      ->type_name("FILE")
      ->required();
  app.add_option("--most", arguments.most, "The most entries to print")
      ->check(CLI::Range(1u, 100000u))
      ->capture_default_str();
  arguments.evidence.add_to(app);
  app.add_option("--json", arguments.json, "Write all entries as JSON")->type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace a file that was not written by Nimble");
  app.footer("Exit status: 0 done, 1 failed, 2 bad input or usage, or no times of the GPU, 3 no step found.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? run(arguments) : status;
}

}  // namespace nimble::analyzer
