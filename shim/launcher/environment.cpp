#include "shim/launcher/environment.h"

namespace nimble::launcher {

std::string preload(const std::string& library, const std::string& before) {
  if (before.empty() || before == library) return library;
  if (before.starts_with(library + ":")) return before;
  return library + ":" + before;
}

std::optional<std::string> find_startup(const std::filesystem::path& prefix) {
  std::error_code error;
  for (const char* folder : {"startup", NIMBLE_PYTHONDIR "/nimble/startup", "../../python/nimble/startup"}) {
    const std::filesystem::path found = (prefix / folder).lexically_normal();
    if (std::filesystem::is_regular_file(found / "sitecustomize.py", error)) return found.string();
  }
  return std::nullopt;
}

std::string python_path(const std::string& folder, const std::string& before) {
  if (folder.find(':') != std::string::npos || before == folder || before.starts_with(folder + ":")) return before;
  return before.empty() ? folder : folder + ":" + before;
}

bool can_preload(std::string_view library) { return library.find_first_of(": \t\n") == std::string_view::npos; }

}  // namespace nimble::launcher
