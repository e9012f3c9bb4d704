#include "shim/launcher/environment.h"

namespace nimble::launcher {
namespace {

constexpr Option kOptions[] = {
#define NIMBLE_OPTION(name, fallback, help) {#name, fallback, help},
#include "nimble/options.def"
};

}  // namespace

std::span<const Option> options() { return kOptions; }

std::string variable(const Option& option) { return "NIMBLE_" + std::string(option.name); }

std::string flag(const Option& option) {
  std::string text = "--";
  for (const char c : option.name)
    text += c == '_' ? '-' : (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  return text;
}

std::string preload(const std::string& library, const std::string& before) {
  if (before.empty() || before == library) return library;
  if (before.starts_with(library + ":")) return before;
  return library + ":" + before;
}

bool can_preload(std::string_view library) { return library.find_first_of(": \t\n") == std::string_view::npos; }

}  // namespace nimble::launcher
