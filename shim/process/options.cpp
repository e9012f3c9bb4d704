#include "shim/process/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "nimble/internal/process/quiet_file.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostEnvironment = std::size_t{64} << 20;

// Before libc has been set up, the environment is only to be had from the kernel: the program may look up the driver's
// functions in its .preinit_array.
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

// The variable's value, or its default from the list.
std::string_view setting(std::string_view name) {
#define NIMBLE_OPTION(option, fallback, help)              \
  if (name == #option) {                                   \
    const char* const value = variable("NIMBLE_" #option); \
    return value && *value ? value : fallback;             \
  }
#include "nimble/internal/options.def"
  return {};
}

std::string_view default_of(std::string_view name) {
#define NIMBLE_OPTION(option, fallback, help) \
  if (name == #option) return fallback;
#include "nimble/internal/options.def"
  return {};
}

// The rank among all processes of the job, as launchers tell it: torchrun; Open MPI; MPICH, Intel MPI and Cray's; PMIx
// beneath any of them; Slurm. Who is started by two of them, as by torchrun under srun, is told first by the inner one.
// 0 where there is none.
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
  bool tells_apart = false;  // names the process or the rank
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

// Puts the rank before the ending: all ranks of a job begin in one folder, and would write one file, one over the
// other. The first rank's keeps its name, which is also that of a process that has no others. Says so in `note`.
void make_own(std::string_view setting, FileName& name, std::string& note, bool is_folder = false) {
  struct statx there {};  // stat() itself is a symbol of glibc 2.33 where this is built on one that is newer
  const bool known = statx(AT_FDCWD, name.text.c_str(), 0, STATX_TYPE, &there) == 0;
  const bool is_no_file = known && !is_folder && !S_ISREG(there.stx_mode);  // /dev/null, a pipe
  if (name.text.empty() || name.tells_apart || rank() == 0 || is_no_file) return;
  const std::size_t folder = name.text.rfind('/');
  const std::size_t begin = folder == std::string::npos ? 0 : folder + 1;
  std::size_t ending = name.text.rfind('.');
  if (ending == std::string::npos || ending <= begin) ending = name.text.size();
  const auto with = [&](const std::string& part) { return std::string(name.text).insert(ending, "." + part); };
  const std::string own = with(std::to_string(rank()));
  note = fmt::format("rank {} writes {}, since {} is the first rank's: NIMBLE_{}={} names the file of every rank",
                     rank(), own, name.text, setting, with("%r"));
  name.text = own;
}

}  // namespace

Options read_options() {
  Options options;
  const auto complain = [&](std::string_view name, std::string_view value, std::string_view expected) {
    if (!options.complaint.empty()) options.complaint += "; ";
    options.complaint += "NIMBLE_" + std::string(name) + "=" + std::string(value) + " is not " + std::string(expected);
  };
  const std::string_view mode = setting("MODE");
  if (mode == "record") {
    options.mode = Mode::record;
  } else if (mode == "replay") {
    options.mode = Mode::replay;
  } else if (mode == "auto") {
    options.mode = Mode::automatic;
  } else if (mode == "regions") {
    options.mode = Mode::regions;
  } else if (mode != "off") {
    complain("MODE", mode, "one of off, record, replay, auto, regions: doing nothing");
  }
  // The host may read what a kernel has written right behind the launch.
  const char* const blocking = variable("CUDA_LAUNCH_BLOCKING");
  if (options.mode > Mode::record && blocking && *blocking && std::string_view(blocking) != "0") {
    options.mode = Mode::off;
    options.complaint =
        fmt::format("CUDA_LAUNCH_BLOCKING={} has each launch wait for its end: NIMBLE_MODE={} is off", blocking, mode);
  }
  FileName trace = expand(setting("TRACE")), stats = expand(setting("STATS")), bundle = expand(setting("BUNDLE"));
  const bool keeps_graphs = mode == "off" && setting("GRAPHS") == "rewrite" && variable("NIMBLE_TRACE") != nullptr;
  if (keeps_graphs) make_own("TRACE", trace, options.own_files);
  if (options.mode == Mode::record) {
    make_own("TRACE", trace, options.own_files);
    std::string same;  // what has been said of the trace need not be said twice
    make_own("BUNDLE", bundle, same, true);
  }
  if (options.mode == Mode::replay || options.mode == Mode::automatic) make_own("STATS", stats, options.own_files);
  // By itself the bundle lies beside the trace.
  const std::size_t folder = trace.text.rfind('/');
  if (!variable("NIMBLE_BUNDLE") && folder != std::string::npos) bundle.text.insert(0, trace.text, 0, folder + 1);
  options.bundle = std::move(bundle.text);
  if (keeps_graphs) options.graphs_trace = trace.text;
  options.trace = std::move(trace.text);
  options.schedule = expand(setting("SCHEDULE")).text;
  options.stats = std::move(stats.text);
  options.log = setting("LOG");
  FileName log_file = expand(setting("LOG_FILE"));
  std::string unsaid;  // whoever reads the log has found it
  make_own("LOG_FILE", log_file, unsaid);
  options.log_file = std::move(log_file.text);
  // A setting that takes one of a few words.
  const auto choose = [&](std::string_view name, auto& value, auto... choices) {
    const std::string_view text = setting(name);
    std::string expected;
    const auto try_one = [&](const auto& choice) {
      if (choice.first == text) value = choice.second;
      if (!expected.empty()) expected += ", ";
      expected += choice.first;
      return choice.first == text;
    };
    if (!(try_one(choices) | ...))
      complain(name, text, "one of " + expected + ": using " + std::string(default_of(name)));
  };
  using Word = std::string_view;
  choose("TIMING", options.timing, std::pair{Word("cupti"), Timing::cupti}, std::pair{Word("events"), Timing::events},
         std::pair{Word("none"), Timing::none});
  choose("COVERAGE", options.coverage, std::pair{Word("on"), true}, std::pair{Word("off"), false});
  choose("TUNE", options.tune, std::pair{Word("off"), Tune::off}, std::pair{Word("start"), Tune::start},
         std::pair{Word("always"), Tune::always});
  choose("TUNE_SAVE", options.tune_save, std::pair{Word("on"), true}, std::pair{Word("off"), false});
  choose("TORCH", options.torch, std::pair{Word("auto"), true}, std::pair{Word("training"), true},
         std::pair{Word("off"), false});
  choose("GRAPHS", options.rewrite_graphs, std::pair{Word("off"), false}, std::pair{Word("rewrite"), true});
  if (options.rewrite_graphs && mode != "off") {
    options.rewrite_graphs = false;
    complain("GRAPHS", setting("GRAPHS"), "off where NIMBLE_MODE is set: leaving graphs as they are");
  }
  choose("CAPTURE", options.capture_bundle, std::pair{Word("off"), false}, std::pair{Word("bundle"), true});
  choose("PROBE", options.probe_writes, std::pair{Word("off"), false}, std::pair{Word("writes"), true});
  const auto number = [](std::string_view text, std::int64_t& value, std::int64_t least = 1) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() && value >= least;
  };
  const std::string_view hold = setting("HOLD_US");
  if (!number(hold, options.hold_us)) {
    number(default_of("HOLD_US"), options.hold_us);
    complain("HOLD_US", hold, "a positive number of microseconds: using " + std::string(default_of("HOLD_US")));
  }
  const std::string_view audit = setting("AUDIT");
  if (const auto [end, error] = std::from_chars(audit.data(), audit.data() + audit.size(), options.audit);
      error != std::errc{} || end != audit.data() + audit.size()) {
    options.audit = 0;
    complain("AUDIT", audit, "a number of steps: auditing none");
  }
  constexpr std::int64_t kMostMebibytes = std::int64_t{1} << 40;
  const std::string_view limit = setting("PROBE_LIMIT");
  if (!number(limit, options.probe_limit_mib, 0) || options.probe_limit_mib > kMostMebibytes) {
    number(default_of("PROBE_LIMIT"), options.probe_limit_mib);
    complain("PROBE_LIMIT", limit, "a number of MiB, or 0: using " + std::string(default_of("PROBE_LIMIT")));
  }
  const std::string_view bound = setting("TRACE_LIMIT");
  if (!number(bound, options.trace_limit_mib, 0) || options.trace_limit_mib > kMostMebibytes) {
    number(default_of("TRACE_LIMIT"), options.trace_limit_mib);
    complain("TRACE_LIMIT", bound, "a number of MiB, or 0: using " + std::string(default_of("TRACE_LIMIT")));
  }
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  const std::string_view steps = setting("STEPS");
  if (!number(steps, options.steps, 0) || options.steps > kMostSteps) {
    options.steps = 0;
    complain("STEPS", steps, "a number of steps, or 0: recording all");
  }
  const std::string_view memory = setting("BUNDLE_LIMIT");
  if (!number(memory, options.bundle_limit_mib) || options.bundle_limit_mib > kMostMebibytes) {
    number(default_of("BUNDLE_LIMIT"), options.bundle_limit_mib);
    complain("BUNDLE_LIMIT", memory, "a number of MiB: using " + std::string(default_of("BUNDLE_LIMIT")));
  }
  const std::string_view launches = setting("PROBE_FIRST");
  if (!number(launches, options.probe_first, 0)) {
    options.probe_first = 0;
    complain("PROBE_FIRST", launches, "a number of launches, or 0: comparing all");
  }
  std::string_view rules = setting("RULES");
  while (!rules.empty()) {
    const std::size_t colon = std::min(rules.find(':'), rules.size());
    if (colon > 0) options.rules.emplace_back(rules.substr(0, colon));
    rules.remove_prefix(std::min(colon + 1, rules.size()));
  }
  const std::string_view auto_limit = setting("AUTO_LIMIT");
  if (!number(auto_limit, options.auto_limit_mib) || options.auto_limit_mib > kMostMebibytes) {
    number(default_of("AUTO_LIMIT"), options.auto_limit_mib);
    complain("AUTO_LIMIT", auto_limit, "a positive number of MiB: using " + std::string(default_of("AUTO_LIMIT")));
  }
  constexpr std::int64_t kMostRecordings = 1000;
  const std::string_view recordings = setting("AUTO_TRIES");
  if (!number(recordings, options.auto_tries) || options.auto_tries > kMostRecordings) {
    number(default_of("AUTO_TRIES"), options.auto_tries);
    complain("AUTO_TRIES", recordings, "a number from 1 to 1000: using " + std::string(default_of("AUTO_TRIES")));
  }
  constexpr std::int64_t kLongestWait = 3'600'000;
  const std::string_view wait = setting("AUTO_WAIT");
  if (!number(wait, options.auto_wait_ms, 0) || options.auto_wait_ms > kLongestWait) {
    options.auto_wait_ms = 0;
    complain("AUTO_WAIT", wait, "a number of milliseconds up to an hour: not waiting");
  }
  return options;
}

}  // namespace nimble::shim
