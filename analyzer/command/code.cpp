#include "analyzer/command/code.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/base/json_text.h"
#include "analyzer/base/text.h"
#include "analyzer/code_survey/summary.h"
#include "analyzer/code_survey/survey.h"
#include "analyzer/code_survey/survey_text.h"
#include "analyzer/command/arguments.h"
#include "analyzer/command/progress.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/written_file.h"

namespace nimble::analyzer {
namespace {

struct CodeArguments {
  std::string file, json;
  KernelNames kernels;
  std::vector<std::string> archs;
  bool summary = false, force = false;
};

// The report as JSON, written as it grows.
class JsonFile {
 public:
  JsonFile(const CodeArguments& arguments) : path_(arguments.json), force_(arguments.force) {
    if (path_.empty()) return;
    check(file_.open(path_, /*through_links=*/true));
    out_.open('{').key("nimble_code").number(1).key("file").text(arguments.file).key("kernels").open('[');
    flush();
  }
  ~JsonFile() {
    if (file_.is_open()) file_.discard();
  }
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  void add(const ImageFindings& image) {
    if (path_.empty()) return;
    for (const KernelFindings& kernel : image.kernels) {
      kernel_json(out_, kernel, image.at);
      flush();
    }
  }
  void finish(const SurveySummary& summary) {
    if (path_.empty()) return;
    out_.newline().close(']').newline().key("summary");
    summary.json(out_);
    out_.close('}');
    flush();
    check(file_.write("\n", 1));
    const bool replaces = taken_of_named(path_, force_) == Taken::replace;
    const int error = replaces ? file_.place_by_force() : file_.place_at_wanted(FileKind::code_report);
    if (!file_.why_other().empty()) throw std::runtime_error(refusal_of_named(path_, file_.why_other()));
    check(error);
    check(file_.close());
  }

 private:
  void check(int error) const {
    if (error != 0) throw std::system_error(error, std::generic_category(), path_);
  }
  void flush() {
    const std::string text = out_.take();
    check(file_.write(text.data(), text.size()));
  }

  const std::string& path_;
  const bool force_;
  OwnFile file_;
  JsonText out_;
};

std::string image_text(const ImageFindings& image) {
  char place[64];
  std::snprintf(place, sizeof place, " at byte 0x%llx", static_cast<unsigned long long>(image.at));
  std::string text = image.kind + place + "\n";
  for (const UnreadPart& part : image.unread) text += "  not read: " + part.what + ": " + part.why + "\n";
  for (const KernelFindings& kernel : image.kernels) text += "\n" + kernel_text(kernel);
  return text + "\n";
}

int run(const CodeArguments& arguments) {
  const auto is_wanted = arguments.kernels.filter();
  const bool names_kernels = !arguments.kernels.expression.empty();
  std::vector<TargetFilter> filters;
  for (const std::string& arch : arguments.archs) {
    const auto filter = TargetFilter::of(arch);
    if (!filter)
      return complain("--arch: " + arch + " is no architecture, such as 90, sm_90a or compute_90", kExitInput);
    filters.push_back(*filter);
  }
  if (const std::string why = why_refused(arguments.json, FileKind::code_report, arguments.force); !why.empty())
    return complain(why, kExitFailure);

  JsonFile json(arguments);
  SurveySummary summary;
  {
    Progress progress("reading " + arguments.file, arguments.summary || !::isatty(STDOUT_FILENO));
    SurveyTasks tasks;
    tasks.wants_target = [&](const CodeTarget& target) {
      return filters.empty() || std::ranges::any_of(filters, [&](const auto& each) { return each.takes(target); });
    };
    tasks.wants_kernel = is_wanted;
    tasks.found = [&](const ImageFindings& image) {
      summary.add(image);
      json.add(image);
      if (!arguments.summary && (!image.kernels.empty() || (!names_kernels && !image.unread.empty())))
        print(image_text(image));
    };
    tasks.progress = [&](std::uint64_t kernels, std::uint64_t done, std::uint64_t size) {
      progress.at(std::to_string(100 * done / std::max<std::uint64_t>(size, 1)) + " %, " + plural(kernels, "kernel"));
    };
    survey_file(arguments.file, tasks);
  }
  json.finish(summary);
  if (summary.kernels() == 0 && (names_kernels || !filters.empty()))
    return complain(arguments.file + ": no kernel is what --kernel and --arch ask for", kExitInput);
  if (arguments.summary) print(summary.text());
  return kExitOk;
}

}  // namespace

int code_command(int argc, char** argv) {
  CodeArguments arguments;
  CLI::App app("Prints what the kernels in a file read and write through each of their parameters.");
  app.name("nimble-analyze code");
  app.add_option("file", arguments.file, "A library or an executable with kernels in it, a fatbin, a cubin, or PTX")
      ->type_name("FILE")
      ->required();
  arguments.kernels.add_to(app);
  app.add_option("--arch", arguments.archs,
                 "Only code for this architecture: 90, sm_90a, compute_90; may be given again")
      ->expected(1);
  app.add_flag("--summary", arguments.summary, "Only count: what is proven by architecture, and what is not, by cause");
  app.add_option("--json", arguments.json, "Write what was found as JSON")->type_name("FILE");
  app.add_flag("--force", arguments.force, "Replace a file that was not written by Nimble");
  app.footer("Exit status: 0 done, 1 failed, 2 bad input or usage, or no such kernel.");
  int status = kExitOk;
  return parse(app, argc, argv, status) ? run(arguments) : status;
}

}  // namespace nimble::analyzer
