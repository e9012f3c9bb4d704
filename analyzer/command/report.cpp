#include "analyzer/command/report.h"

#include <cstdint>
#include <string>

#include "analyzer/base/errors.h"
#include "analyzer/base/text.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/find_recording.h"
#include "analyzer/page/html_report.h"
#include "analyzer/page/page_data.h"
#include "nimble/internal/files/written_file.h"

namespace nimble::analyzer {
namespace {

struct ReportArguments {
  std::string trace, output = "report.html";
  EvidenceArguments evidence;
  std::uint32_t from = 0;
  bool quiet = false, force = false;
};

int run(const ReportArguments& arguments) {
  const AnalysisOptions options = arguments.evidence.options();
  if (const std::string why = why_refused(arguments.output, FileKind::page, arguments.force); !why.empty())
    return complain(why, kExitFailure);
  const Analysis analysis = analyze_recording(arguments.trace, options);
  if (analysis.step.period == 0)
    return complain(arguments.trace + ": no step found: " + analysis.plan.why_no_schedule, kExitNoStep);
  if (arguments.from >= analysis.step.period)
    return complain("--from: the step has ops 0 to " + std::to_string(analysis.step.period - 1) + ", not " +
                        std::to_string(arguments.from),
                    kExitInput);
  write_named(arguments.output, html_report(analysis, arguments.from), FileKind::page, arguments.force);
  if (arguments.quiet) return kExitOk;
  const std::uint32_t left = analysis.step.period - arguments.from;
  print("Written: " + arguments.output + "\n");
  if (left > kMostOpsOfPage)
    print("It shows " + plural(kMostOpsOfPage, "op") + " of " + std::to_string(analysis.step.period) +
          ": --from N shows those from op N on.\n");
  return kExitOk;
}

}  // namespace

int report_command(int argc, char** argv) {
  ReportArguments arguments;
  CLI::App app("Writes the report on a trace's step as an HTML page: timeline, dependencies, kernels, memory.");
  app.name("nimble-analyze report");
  app.add_option("trace", arguments.trace, "The trace, as recorded with NIMBLE_MODE=record")
      ->type_name("FILE")
      ->required();
  app.add_option("-o,--output", arguments.output, "Where to write the page")->type_name("FILE")->capture_default_str();
  app.add_option("--from", arguments.from, "The first op to show, of a step that has too many for one page");
  arguments.evidence.add_to(app);
  app.add_flag("--quiet", arguments.quiet, "Print nothing if all is well");
  app.add_flag("--force", arguments.force, "Replace a file that was not written by Nimble");
  app.footer("Exit status: 0 done, 1 failed, 2 bad input or usage, 3 no step found.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? run(arguments) : status;
}

}  // namespace nimble::analyzer
