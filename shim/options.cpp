#include "shim/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace nimble::shim {

namespace {

// Before libc has been set up, the environment is only to be had from the kernel: the program may look up the driver's
// functions in its .preinit_array.
const char* variable(const char* name) {
  if (environ) return std::getenv(name);
  static const std::string* const initial = [] {
    std::ifstream file("/proc/self/environ", std::ios::binary);
    auto* text = new std::string("\0", 1);
    text->append(std::istreambuf_iterator<char>(file), {});
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
#include "nimble/options.def"
  return {};
}

std::string_view default_of(std::string_view name) {
#define NIMBLE_OPTION(option, fallback, help) \
  if (name == #option) return fallback;
#include "nimble/options.def"
  return {};
}

// The rank, as the usual launchers tell it: torchrun, Open MPI, MPICH and Intel MPI, Slurm. "0" where there is none.
std::string rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = variable(name); value && *value) return value;
  }
  return "0";
}

std::string expand(std::string_view pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      const char letter = pattern[++i];
      if (letter == 'p') {
        text += std::to_string(getpid());
      } else if (letter == 'r') {
        text += rank();
      } else if (letter == '%') {
        text += '%';
      } else {
        text += '%';
        text += letter;
      }
    } else {
      text += pattern[i];
    }
  }
  return text;
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
  } else if (mode != "off") {
    complain("MODE", mode, "one of off, record, replay: doing nothing");
  }
  options.trace = expand(setting("TRACE"));
  options.schedule = expand(setting("SCHEDULE"));
  options.stats = expand(setting("STATS"));
  options.log = setting("LOG");
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
  const std::string_view launches = setting("PROBE_FIRST");
  if (!number(launches, options.probe_first, 0)) {
    options.probe_first = 0;
    complain("PROBE_FIRST", launches, "a number of launches, or 0: comparing all");
  }
  return options;
}

}  // namespace nimble::shim
