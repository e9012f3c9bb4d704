// The options of this process, from the environment, with a member for each row of nimble/internal/options.def. This
// struct owns the parsed values; their users get what they need passed in (shim/modes/session.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nimble/internal/evidence.h"
#include "nimble/internal/tune.h"
#include "shim/options/timing.h"

namespace nimble::shim {

// Those after `record` hold launches back.
enum class Mode : std::uint8_t { off, check, record, replay, automatic, regions };
enum class Verbosity : std::uint8_t { off, error, warn, info };

struct Options {
#define NIMBLE_CHOICE(name, type, fallback, modes, help, words) type name{};
#define NIMBLE_FLAG(name, fallback, modes, help) bool name = false;
#define NIMBLE_INTEGER(name, fallback, least, most, unit, modes, help) std::int64_t name = fallback;
#define NIMBLE_PATH(name, fallback, access, modes, help) std::string name;
#define NIMBLE_LIST(name, separator, modes, help) std::vector<std::string> name;
#include "nimble/internal/options.def"

  // Derived from several options. In paths %p and %r are replaced. Files that this mode writes are this rank's own,
  // whatever their names say.
  bool audit_is_set = false;  // NIMBLE_AUDIT is set
  std::string graphs_trace;   // where the recording of graphs goes; empty if NIMBLE_TRACE is not set
  std::string own_files;      // one line for the user if that changed a name; else empty
  std::string complaint;      // on each refused value, for which the default counts, and on modes that are not possible
  std::string log_complaint;  // the same on NIMBLE_LOG, for the log's first line
};

// Reads the environment. An unknown mode means off: an option that we do not understand must not change the program.
Options read_options();
// That of the table of options, for what is done: `graphs` where graphs are rewritten.
std::string name_of_mode(const Options& options);

}  // namespace nimble::shim
