// The environment in which the launcher runs a program: the preload, and Nimble's variables.
//
// Free functions without state. `option_names` and `variable` map what stands in nimble/options.def.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nimble::launcher {

// One line of nimble/options.def, as written there: without the prefix NIMBLE_.
struct Option {
  std::string_view name, fallback, help;
};

std::span<const Option> options();

std::string variable(const Option& option);  // HOLD_US -> NIMBLE_HOLD_US
std::string flag(const Option& option);      // HOLD_US -> --hold-us

// The value for LD_PRELOAD: `library` first, then what was there before. `library` is not named twice.
std::string preload(const std::string& library, const std::string& before);

// Whether LD_PRELOAD can name this file: it separates names by spaces and colons, and knows no quoting.
bool can_preload(std::string_view library);

}  // namespace nimble::launcher
