// The environment in which the launcher runs a program: the preload, and the Python package.
//
// Free functions without state.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace nimble::launcher {

// The value for LD_PRELOAD: `library` first, then what was there before, without naming `library` twice.
std::string preload(const std::string& library, const std::string& before);

// The folder whose sitecustomize.py prepares PyTorch modules automatically (python/nimble/startup), for the launcher in
// `prefix`/bin: in a wheel, where CMake has installed it, or in the checkout whose build tree this is.
std::optional<std::string> find_startup(const std::filesystem::path& prefix);

// The value for PYTHONPATH: `folder` first, then what was there before, without naming `folder` twice. PYTHONPATH
// cannot name a folder with a colon in its path; then it stays as it was.
std::string python_path(const std::string& folder, const std::string& before);

// Whether LD_PRELOAD can name this file: it separates names by spaces and colons, and knows no quoting.
bool can_preload(std::string_view library);

}  // namespace nimble::launcher
