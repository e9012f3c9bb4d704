#include "analyzer/kernel_code/ptx/compiler_names.h"

#include <algorithm>

namespace nimble::code {
namespace {

bool digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// LLVM's .str, .str.1, .str.1.2, with dots as PTX spells them.
bool llvm_literal(std::string_view name) {
  constexpr std::string_view kFirst = "_$_str", kDot = "_$_";
  if (!name.starts_with(kFirst)) return false;
  name.remove_prefix(kFirst.size());
  while (name.starts_with(kDot)) {
    name.remove_prefix(kDot.size());
    const std::size_t end = std::min(name.find(kDot), name.size());
    if (end == 0 || !digits(name.substr(0, end))) return false;
    name.remove_prefix(end);
  }
  return name.empty();
}

}  // namespace

bool names_constant(std::string_view name) {
  if (name.starts_with("__cudart_") || name == "$str") return true;
  for (const std::string_view prefix : {"$str$", "__unnamed_"})
    if (name.starts_with(prefix)) return digits(name.substr(prefix.size()));
  return llvm_literal(name);
}

}  // namespace nimble::code
