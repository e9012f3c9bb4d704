// nimble: `nimble run -- program` runs a program with libnimble.so preloaded. It sets the environment and then becomes
// the program, so exit status, signals and terminal are the program's own.
#include <cuda.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/command/describe_command.h"
#include "nimble/internal/version.h"
#include "shim/launcher/check_schedule.h"
#include "shim/launcher/environment.h"
#include "shim/launcher/help.h"
#include "shim/launcher/program.h"
#include "shim/launcher/top.h"
#include "shim/options/option_table.h"
#include "shim/options/options.h"

namespace nimble::launcher {
namespace {

// As in shells.
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
constexpr int kUsage = 2;

std::string get(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The folder whose bin this program is in: of the build tree, of a Python package, or where CMake installed it.
std::optional<std::filesystem::path> prefix() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  return self.parent_path().parent_path();
}

// libnimble.so beside this program.
std::optional<std::string> find_library() {
  const std::optional<std::filesystem::path> own = prefix();
  if (!own) return std::nullopt;
  std::error_code error;
  for (const char* folder : {"lib", NIMBLE_LIBDIR}) {
    const std::filesystem::path file = *own / folder / "libnimble.so";
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return std::nullopt;
}

// Help with a usage line that says where the program stands.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "Usage: " + usage_ + "\n";
  }

 private:
  std::string usage_;
};

std::string footer() {
  return environment_help() +
         "\nFirst steps:\n"
         "  nimble run -- program             # writes trace.json\n"
         "  nimble-analyze trace.json         # writes schedule.json\n"
         "  nimble run --mode replay -- program";
}

std::string version_text() {
  return std::string("nimble ") + kVersion + "\nbuilt with  CUDA " + std::to_string(CUDA_VERSION / 1000) + "." +
         std::to_string(CUDA_VERSION % 1000 / 10) + " headers, " NIMBLE_COMPILER "\nlibrary     " +
         find_library().value_or("libnimble.so is not beside this program");
}

int complain(const std::string& text, int status) {
  std::cerr << "nimble: " << text << "\n";
  return status;
}

// Where the program begins in the arguments after `run`: after `--`, or at the first word that is not an option. Each
// option takes one value, except the help. What follows belongs to the program, whatever it looks like.
std::size_t program_begin(const std::vector<std::string>& arguments) {
  std::size_t i = 0;
  while (i < arguments.size()) {
    const std::string& word = arguments[i];
    if (word.size() < 2 || word[0] != '-') break;
    if (word == "--") break;
    const bool alone = word == "-h" || word == "--help" || word.find('=') != std::string::npos;
    const bool forgotten = i + 1 < arguments.size() && arguments[i + 1] == "--";  // its value
    i += alone || forgotten ? 1 : 2;
  }
  return std::min(i, arguments.size());
}

int become(const std::vector<std::string>& program, const std::string& library) {
  const std::string& name = program.front();
  const std::optional<std::string> file = find_program(name, get("PATH"));
  std::error_code unknown;
  if (!file && name.ends_with(".py") && std::filesystem::is_regular_file(name, unknown))
    return complain("program not found: " + name + "; run a Python script as: python3 " + name, kNotFound);
  if (!file) return complain("program not found: " + name, kNotFound);
  if (const auto why = why_no_preload(*file)) {
    complain(*why + ": Nimble cannot be preloaded into it, and has no effect. Running it without Nimble.", 0);
  }
  ::setenv("LD_PRELOAD", preload(library, get("LD_PRELOAD")).c_str(), 1);

  std::vector<char*> argv;
  for (const std::string& word : program) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::cout.flush();
  ::execvp(name.c_str(), argv.data());
  const int error = errno;
  std::error_code ignored;
  if (error == ENOENT) {
    const bool there = std::filesystem::exists(*file, ignored);
    return complain(there ? "the interpreter that " + *file + " names is missing" : "program not found: " + name,
                    kNotFound);
  }
  const bool folder = std::filesystem::is_directory(*file, ignored);
  return complain("cannot execute " + *file + ": " + (folder ? "it is a folder" : std::strerror(error)),
                  kNotExecutable);
}

// Takes the program and its arguments off: CLI11 sees only our own.
std::vector<std::string> take_program(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "run") return {};
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  const std::size_t begin = program_begin(rest);
  const bool marked = begin < rest.size() && rest[begin] == "--";
  arguments.resize(1 + begin);
  return {rest.begin() + static_cast<std::ptrdiff_t>(begin + (marked ? 1 : 0)), rest.end()};
}

// Makes `library`, as the user named it or empty, the path to preload. Empty, or why there is none.
std::string find_what_to_preload(std::string& library) {
  if (library.empty()) {
    const std::optional<std::string> found = find_library();
    if (!found) return "libnimble.so is not beside this program: build or install it, or name it with --library";
    library = *found;
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(library, error)) return "no such library: " + library;
  library = std::filesystem::absolute(library).string();
  if (can_preload(library)) return {};
  return "LD_PRELOAD cannot name a file with a space or a colon in its path: " + library +
         "; move it, or name a link to it with --library";
}

// Sets the variables that follow from those that are set. Nothing, or why the program would run for nothing.
std::optional<std::string> complete_variables() {
  // Rewriting graphs does not imply recording.
  const bool graphs = !get("NIMBLE_GRAPHS").empty() && get("NIMBLE_GRAPHS") != "off";
  if (get("NIMBLE_MODE").empty()) ::setenv("NIMBLE_MODE", graphs ? "off" : "record", 1);
  // A mode that libnimble.so does not know or cannot use would waste a run.
  if (const std::string why = why_refused(shim::option_row("mode"), get("NIMBLE_MODE")); !why.empty()) return why;
  const shim::Options settings = shim::read_options();
  if (settings.mode == shim::Mode::off && get("NIMBLE_MODE") != "off") return settings.complaint;
  // Python programs find the package that prepares PyTorch modules before anything else.
  if (settings.mode == shim::Mode::automatic && settings.torch) {
    const std::optional<std::filesystem::path> own = prefix();
    if (const auto startup = own ? find_startup(*own) : std::nullopt)
      ::setenv("PYTHONPATH", python_path(*startup, get("PYTHONPATH")).c_str(), 1);
  }
  return std::nullopt;
}

CLI::App* add_check(CLI::App& app, std::string& schedule) {
  CLI::App* const check = app.add_subcommand("check", "Read a schedule as replay would, and say what is wrong with it");
  check->formatter(std::make_shared<Help>("nimble check schedule.json"));
  check->footer("Exit status 0 if the schedule can be replayed, 2 if it is broken.");
  check->add_option("schedule", schedule, "the file")->type_name("FILE")->required();
  return check;
}

CLI::App* add_top(CLI::App& app, TopOptions& shown) {
  CLI::App* const top =
      app.add_subcommand("top", "Show what a program is doing that runs with --live FILE, a line each second");
  top->formatter(std::make_shared<Help>("nimble top [options] FILE"));
  top->footer("Ends when the program does. Exit status 2 if no program keeps the file.");
  top->add_option("file", shown.path, "the file")->type_name("FILE")->required();
  CLI::Option* const interval = top->add_option("--interval", shown.seconds, "how often to look [1]");
  interval->type_name("SECONDS")->check(CLI::Range(0.1, 3600.0));
  top->add_flag("--once", shown.once, "print one line, and exit");
  return top;
}

int main(int argc, char** argv) {
  CLI::App app(
      "Nimble makes GPU programs faster without touching them: it records what a program submits, works out\n"
      "what depends on what (nimble-analyze), and submits it as ready-made CUDA graphs.");
  app.formatter(std::make_shared<Help>("nimble run [options] -- program [arguments]"));
  app.set_version_flag("--version", version_text);
  app.footer(footer());

  CLI::App* run = app.add_subcommand(
      "run", "Run a program with libnimble.so preloaded; mode is record unless told otherwise, or off with --graphs");
  run->formatter(std::make_shared<Help>("nimble run [options] -- program [arguments]"));
  run->footer(
      "Each option sets the environment variable of its name, NIMBLE_...; without it, the variable stands as it is.\n"
      "The exit status is the program's; 127 if it is not found, 126 if it cannot be run.");
  std::map<std::string, CLI::Option*> given;
  CommandFacts facts;
  for (const shim::OptionRow& row : shim::option_rows()) {
    const std::string help = described(row, row.name == "mode" ? "record" : row.fallback);
    CLI::Option* const option = run->add_option(flag(row), help)->type_name(placeholder(row));
    given[variable_of(row)] = option;
    for (const shim::OptionWord& word : row.words) facts.words[option].emplace_back(word.word);
  }
  std::string library;
  run->add_option("--library", library, "the libnimble.so to preload [the one beside this program]")->type_name("FILE");

  std::string schedule;
  CLI::App* const check = add_check(app, schedule);
  TopOptions shown;
  CLI::App* const top = add_top(app, shown);
  for (CLI::App* each : {&app, run, check, top}) add_describe(*each, facts);

  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::vector<std::string> program = take_program(arguments);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // the help or the version was asked for
    return complain(std::string(error.what()) + "; see nimble --help", kUsage);
  }
  if (check->parsed()) return check_schedule(schedule);
  if (top->parsed()) return show_live(shown);
  if (!run->parsed()) return complain("nothing to do; see nimble --help", kUsage);
  if (program.empty()) return complain("no program to run; see nimble run --help", kUsage);

  if (const std::string why = find_what_to_preload(library); !why.empty()) return complain(why, kUsage);
  for (const auto& [name, option] : given) {
    if (option->count() > 0) ::setenv(name.c_str(), option->as<std::string>().c_str(), 1);
  }
  if (const std::optional<std::string> why = complete_variables()) return complain(*why, kUsage);
  return become(program, library);
}

}  // namespace
}  // namespace nimble::launcher

int main(int argc, char** argv) { return nimble::launcher::main(argc, argv); }
