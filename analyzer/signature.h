// What a kernel's mangled name tells about the types of its parameters.
//
// Pure functions; any thread. No errors: a name that tells nothing gives nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

// The readable form of a mangled name; the name itself where it is not mangled, cannot be demangled, or is longer than
// 16 KiB.
std::string demangle(const std::string& name);

// The types in the parameter list of a demangled function, or nothing where there is no such list.
std::optional<std::vector<std::string>> parameter_types(std::string_view demangled);

enum class ParamKind : std::uint8_t {
  value,      // a builtin type, no pointer
  reads,      // pointer to const
  writes,     // any other pointer
  aggregate,  // a class by value: may hold anything
  unknown,    // may lead to memory that the parameters do not name: `why`
};

struct ParamType {
  ParamKind kind = ParamKind::unknown;
  std::uint32_t size = 0;  // bytes; 0 where the type does not tell
  const char* why = "";
};

// What a type, as a demangled name spells it, lets a kernel reach.
ParamType classify(std::string_view type);

}  // namespace nimble::analyzer
