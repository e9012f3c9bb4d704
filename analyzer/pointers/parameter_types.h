// The types of a kernel's parameters, as its demangled name (analyzer/base/demangle.h) tells them.
//
// Pure functions; any thread. No errors: a name that tells nothing gives nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

// The types in the parameter list of a demangled function, or nothing if there is no such list.
std::optional<std::vector<std::string>> parameter_types(std::string_view demangled);

enum class ParamKind : std::uint8_t {
  value,      // a builtin type, not a pointer
  reads,      // pointer to const numbers
  writes,     // pointer to numbers
  table,      // pointer to pointers to numbers: leads to whatever they point to
  any,        // pointer to what may be pointers, or hold them: `why`
  aggregate,  // a class by value: may hold anything
  unknown,    // may lead to memory that the parameters do not name: `why`
};

// What may be at the target of a pointer. Integers may be bytes of something else that are copied; floating-point
// numbers are computed with, so only they are never assumed to be part of an address.
enum class Pointee : std::uint8_t { anything, integers, fractions };

struct ParamType {
  ParamKind kind = ParamKind::unknown;
  std::uint32_t size = 0;  // bytes; 0 if the type does not tell
  const char* why = "";
  // For reads, writes and table, and for a class that is an array of such pointers: what the pointers finally lead to.
  Pointee pointee = Pointee::anything;
  bool is_const = false;          // table, any: what the pointer points to directly
  bool reads_pointees = false;    // table: only reads what its pointers point to
  bool array_of_numbers = false;  // aggregate: an array of pointers to numbers, and nothing else
};

// What a type, as spelled in a demangled name, lets a kernel reach.
ParamType classify(std::string_view type);

}  // namespace nimble::analyzer
