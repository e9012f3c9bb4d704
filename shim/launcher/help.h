// What the launcher says of Nimble's options: their flags, and what `nimble --help` and `nimble run --help` show.
//
// Free functions without state; any thread may call them.
#pragma once

#include <string>
#include <string_view>

#include "shim/options/option_table.h"

namespace nimble::launcher {

std::string flag(const shim::OptionRow& row);         // hold_us -> --hold-us
std::string placeholder(const shim::OptionRow& row);  // what stands for the value: N, WORD, on|off, FILE, DIR, A[:B...]

// Modes, help and default, then a line for each word that has a meaning.
std::string described(const shim::OptionRow& row, std::string_view fallback);

// All options, by their variables.
std::string environment_help();

}  // namespace nimble::launcher
