#include "analyzer/command/kernels.h"

#include <string>

#include "analyzer/base/errors.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/find_recording.h"
#include "analyzer/report/kernels.h"
#include "analyzer/stages/read_steps.h"
#include "nimble/internal/files/written_file.h"

namespace nimble::analyzer {
namespace {

struct KernelsArguments {
  std::string trace, json;
  KernelNames kernels;
  EvidenceArguments evidence;
  bool unknown = false, force = false;
};

int run(const KernelsArguments& arguments) {
  const auto is_wanted = arguments.kernels.filter();
  if (const std::string why = why_refused(arguments.json, FileKind::kernels_report, arguments.force); !why.empty())
    return complain(why, kExitFailure);
  const AnalysisOptions options = arguments.evidence.options();
  const Recording recording = recording_of(read_recording(arguments.trace));
  KernelUses uses = kernel_uses(recording, options);
  std::erase_if(uses.kernels, [&](const KernelUse& use) { return !is_wanted(use.name); });
  if (!arguments.kernels.expression.empty() && uses.kernels.empty())
    return complain(arguments.trace + ": launches no kernel that --kernel asks for", kExitInput);
  if (!arguments.json.empty())
    write_named(arguments.json, kernels_json(recording, uses, options.trust), FileKind::kernels_report,
                arguments.force);
  print(kernels_text(recording, uses, options.trust, arguments.unknown));
  return kExitOk;
}

}  // namespace

int kernels_command(int argc, char** argv) {
  KernelsArguments arguments;
  CLI::App app("Prints what each kernel of a trace reads and writes, and how that is known.");
  app.name("nimble-analyze kernels");
  app.add_option("trace", arguments.trace, "The trace, as recorded with NIMBLE_MODE=record")
      ->type_name("FILE")
      ->required();
  arguments.kernels.add_to(app);
  app.add_flag("--unknown", arguments.unknown, "List only kernels whose memory is not known in some launch");
  arguments.evidence.add_to(app);
  app.add_option("--json", arguments.json, "Write what was found as JSON")->type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace a file that was not written by Nimble");
  app.footer("Exit status: 0 done, 1 failed, 2 bad input or usage, or no such kernel.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? run(arguments) : status;
}

}  // namespace nimble::analyzer
