#include "shim/options/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "nimble/internal/process/quiet_file.h"
#include "shim/options/option_table.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostEnvironment = std::size_t{64} << 20;

// Before libc is set up, only the kernel has the environment: the program may look up the driver's functions in its
// .preinit_array.
const char* variable(const char* name) {
  if (environ) return std::getenv(name);
  static const std::string* const initial = [] {
    auto* text = new std::string;
    read_quiet("/proc/self/environ", kMostEnvironment, *text);
    text->insert(text->begin(), '\0');
    return text;
  }();
  const std::string key = fmt::format("{}{}=", '\0', name);
  const std::size_t at = initial->find(key);
  return at == std::string::npos ? nullptr : initial->c_str() + at + key.size();
}

// Whether the row's variable is set, even if empty.
bool is_set(const OptionRow& row) { return variable(variable_of(row).c_str()) != nullptr; }

// The variable's value, or the row's default.
std::string_view setting(const OptionRow& row) {
  const char* const value = variable(variable_of(row).c_str());
  return value && *value ? value : row.fallback;
}

void add_line(std::string& lines, const std::string& line) { lines += (lines.empty() ? "" : "; ") + line; }

// The rank among all processes of the job, from the launcher's variables: torchrun; Open MPI; MPICH, Intel MPI and
// Cray's; PMIx beneath any of them; Slurm. If two of them are nested, as torchrun under srun, the inner one comes
// first. 0 if there is none.
std::uint32_t rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const std::string_view text = variable(name) ? variable(name) : "";
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size()) return value;
  }
  return 0;
}

struct FileName {
  std::string text;
  bool tells_apart = false;  // contains %p or %r
};

FileName expand(std::string_view pattern) {
  FileName name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      name.text += pattern[i];
      continue;
    }
    const char letter = pattern[++i];
    name.tells_apart = name.tells_apart || letter == 'p' || letter == 'r';
    if (letter == 'p') {
      name.text += std::to_string(getpid());
    } else if (letter == 'r') {
      name.text += std::to_string(rank());
    } else {
      name.text += '%';
      if (letter != '%') name.text += letter;
    }
  }
  return name;
}

// Puts the rank before the extension: all ranks of a job start in one folder, and would overwrite each other's file.
// The first rank's file keeps its name, as does that of a process without ranks. Says so in `note`.
void make_own(const OptionRow& row, FileName& name, std::string& note) {
  struct statx there {};  // stat() itself is a symbol of glibc 2.33 where this is built on one that is newer
  const bool known = statx(AT_FDCWD, name.text.c_str(), 0, STATX_TYPE, &there) == 0;
  const bool is_no_file =
      known && row.access == PathAccess::writes_file && !S_ISREG(there.stx_mode);  // /dev/null, a pipe
  if (name.text.empty() || name.tells_apart || rank() == 0 || is_no_file) return;
  const std::size_t folder = name.text.rfind('/');
  const std::size_t begin = folder == std::string::npos ? 0 : folder + 1;
  std::size_t ending = name.text.rfind('.');
  if (ending == std::string::npos || ending <= begin) ending = name.text.size();
  const auto with = [&](const std::string& part) { return std::string(name.text).insert(ending, "." + part); };
  const std::string own = with(std::to_string(rank()));
  note = fmt::format("rank {} writes {}, since {} is the first rank's: {}={} names the file of every rank", rank(), own,
                     name.text, variable_of(row), with("%r"));
  name.text = own;
}

// Each row's value: what the environment says, if the row accepts it, else the default.
class Reader {
 public:
  explicit Reader(Options& options) : options_(options) {}

  template <class Value>
  Value choice(std::string_view name, std::initializer_list<std::pair<std::string_view, Value>> words) {
    const std::string_view text = accepted(option_row(name));
    return std::ranges::find(words, text, &std::pair<std::string_view, Value>::first)->second;
  }

  bool flag(std::string_view name) { return accepted(option_row(name)) == "on"; }

  std::int64_t integer(std::string_view name) {
    const std::string_view text = accepted(option_row(name));
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  std::vector<std::string> list(std::string_view name) {
    const OptionRow& row = option_row(name);
    std::vector<std::string> parts;
    for (std::string_view text = setting(row); !text.empty();) {
      const std::size_t end = std::min(text.find(row.separator), text.size());
      if (end > 0) parts.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
  }

 private:
  std::string_view accepted(const OptionRow& row) {
    const std::string_view text = setting(row);
    const std::string why = why_refused(row, text);
    if (why.empty()) return text;
    add_line(row.name == "log" ? options_.log_complaint : options_.complaint,
             fmt::format("{}: using {}", why, row.fallback));
    return row.fallback;
  }

  Options& options_;
};

// Refuses modes that are not possible as requested.
void settle_mode(Options& options) {
  const std::string_view mode = setting(option_row("mode"));
  if (options.graphs && mode != "off") {
    options.graphs = false;
    add_line(options.complaint, "NIMBLE_GRAPHS=rewrite works only with NIMBLE_MODE off: leaving graphs as they are");
  }
  // The host may read what a kernel has written as soon as the launch returns.
  const char* const blocking = variable("CUDA_LAUNCH_BLOCKING");
  if (options.mode > Mode::record && blocking && *blocking && std::string_view(blocking) != "0") {
    options.mode = Mode::off;
    add_line(options.complaint,
             fmt::format("CUDA_LAUNCH_BLOCKING={} makes each launch wait for its end: NIMBLE_MODE={} is off", blocking,
                         mode));
  }
}

// Refuses what another option makes meaningless.
void settle_trust(Options& options) {
  const OptionRow& rules = option_row("rules");
  if (!options.rules.empty() && options.trust < Evidence::declared && counts_in(rules, name_of_mode(options)))
    add_line(options.complaint,
             fmt::format("{}: what only a rule says that a kernel reads and writes is not believed; {}={} believes it",
                         variable_of(rules), variable_of(option_row("trust")), name(Evidence::declared)));
}

// The file names of the rows, for this process.
class FileNames {
 public:
  explicit FileNames(Options& options) : options_(options), mode_(name_of_mode(options)) {}

  std::string path(std::string_view option) {
    const OptionRow& row = option_row(option);
    FileName name = expand(setting(row));
    if (!is_written(row)) return name.text;
    std::string note;
    make_own(row, name, note);
    // No note for folders, which say it themselves, nor for the log, whose reader has found it.
    if (row.access == PathAccess::writes_file && row.name != "log_file" && !note.empty()) options_.own_files = note;
    return name.text;
  }

 private:
  bool is_written(const OptionRow& row) const {
    if (mode_ == "graphs" && row.name == "trace" && !is_set(row)) return false;  // then it has no default
    const bool is_own = row.access == PathAccess::writes_file || row.access == PathAccess::writes_folder;
    return is_own && counts_in(row, mode_);
  }

  Options& options_;
  const std::string mode_;
};

}  // namespace

std::string name_of_mode(const Options& options) {
  if (options.mode == Mode::off) return options.graphs ? "graphs" : "off";
  return std::string(setting(option_row("mode")));
}

Options read_options() {
  Options options;
  Reader read(options);
#define NIMBLE_WORD(value, word, meaning) {word, value},
#define NIMBLE_CHOICE(name, type, fallback, modes, help, words) options.name = read.choice<type>(#name, {words});
#define NIMBLE_FLAG(name, fallback, modes, help) options.name = read.flag(#name);
#define NIMBLE_INTEGER(name, fallback, least, most, unit, modes, help) options.name = read.integer(#name);
#define NIMBLE_LIST(name, separator, modes, help) options.name = read.list(#name);
#include "nimble/internal/options.def"
  settle_mode(options);
  settle_trust(options);
  const char* const audit = variable(variable_of(option_row("audit")).c_str());
  options.audit_is_set = audit && *audit;
  FileNames files(options);  // the mode decides which of them are written
#define NIMBLE_PATH(name, fallback, access, modes, help) options.name = files.path(#name);
#include "nimble/internal/options.def"

  // By default the bundle lies beside the trace.
  const std::size_t folder = options.trace.rfind('/');
  if (!is_set(option_row("bundle")) && folder != std::string::npos)
    options.bundle.insert(0, options.trace, 0, folder + 1);
  if (options.graphs && is_set(option_row("trace"))) options.graphs_trace = options.trace;
  return options;
}

}  // namespace nimble::shim
