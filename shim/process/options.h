// The settings of this process, from the environment (include/nimble/internal/options.def). Read once, then constant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nimble/internal/tune.h"

namespace nimble::shim {

enum class Mode : std::uint8_t { off, record, replay, automatic, regions };  // those behind `record` hold launches back

// Where the times at which the GPU ran the ops come from.
enum class Timing : std::uint8_t { none, cupti, events };

struct Options {
  Mode mode = Mode::off;
  bool rewrite_graphs = false;  // with mode off alone
  // File names, with %p and %r replaced. Those that this mode writes are this rank's own, whatever their names say.
  std::string trace, schedule, stats, bundle;
  std::string graphs_trace;  // NIMBLE_GRAPHS: where its recording goes; empty where NIMBLE_TRACE does not tell
  std::string own_files;     // one line for the user where a name had to be changed for that; else empty
  std::string log, log_file;
  std::int64_t trace_limit_mib = 0;  // 0: none
  std::int64_t steps = 0;            // 0: all
  Timing timing = Timing::cupti;
  bool coverage = true;
  std::int64_t hold_us = 0;
  std::uint32_t audit = 0;
  Tune tune = Tune::start;
  bool tune_save = false;
  bool probe_writes = false;
  std::int64_t probe_limit_mib = 0;  // 0: none
  std::int64_t probe_first = 0;      // 0: all
  bool capture_bundle = false;
  std::int64_t bundle_limit_mib = 0;
  std::vector<std::string> rules;
  std::int64_t auto_limit_mib = 0;
  std::int64_t auto_tries = 0;
  std::int64_t auto_wait_ms = 0;
  bool torch = true;  // mode auto: the launcher puts the Python package before the program's
  // Of each setting that could not be understood, and keeps its default, and of a mode that cannot be had.
  std::string complaint;
};

// Reads the environment. An unknown mode is off: what was not understood must not change the program.
Options read_options();

}  // namespace nimble::shim
