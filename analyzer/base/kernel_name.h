// A kernel's name as messages and reports show it. Pure; any thread. No errors.
#pragma once

#include <string>

namespace nimble::analyzer {

// Readable, without its parameters and return type; of any length: shortened() (analyzer/base/text.h) cuts it.
std::string kernel_name(const std::string& name);

}  // namespace nimble::analyzer
