// The readable form of a kernel's mangled name, with all it has: rules and filters go by it. Messages show less of it
// (analyzer/base/kernel_name.h). Pure; any thread. No errors.
#pragma once

#include <string>

namespace nimble::analyzer {

// The name itself if it is not mangled, cannot be demangled, or is longer than 16 KiB.
std::string demangle(const std::string& name);

}  // namespace nimble::analyzer
