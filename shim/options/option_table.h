// The rows of nimble/internal/options.def as data: for the parser, and for help texts.
//
// Constant. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nimble::shim {

enum class OptionKind : std::uint8_t { choice, flag, integer, path, list };
enum class PathAccess : std::uint8_t { reads_file, writes_file, writes_folder, shares_folder };

struct OptionWord {
  std::string_view word, meaning;
};

struct OptionRow {
  std::string_view name;  // hold_us
  OptionKind kind = OptionKind::choice;
  std::string_view fallback;  // the default, as text
  std::string_view modes;     // "any", or separated by ", "
  std::string_view help;
  std::span<const OptionWord> words{};         // of a choice; or of a flag, where they have no meaning of their own
  std::int64_t least = 0, most = 0;            // integer
  std::string_view unit{};                     // integer
  PathAccess access = PathAccess::reads_file;  // path
  char separator = '\0';                       // list
};

// In the order of the file.
std::span<const OptionRow> option_rows();

// The row of this name, which must exist.
const OptionRow& option_row(std::string_view name);

std::string variable_of(const OptionRow& row);  // NIMBLE_HOLD_US

// Whether the option counts in this mode: off, record, replay, auto, regions, check or graphs.
bool counts_in(const OptionRow& row, std::string_view mode);

// "NIMBLE_STEPS=many is not a number of steps from 0 to 1000000000"; empty where the row accepts the text.
std::string why_refused(const OptionRow& row, std::string_view text);

}  // namespace nimble::shim
