// The readable form of a kernel's mangled name. Pure; any thread. No errors.
#pragma once

#include <string>

namespace nimble::analyzer {

// The name itself if it is not mangled, cannot be demangled, or is longer than 16 KiB.
std::string demangle(const std::string& name);

}  // namespace nimble::analyzer
