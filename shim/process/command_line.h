// The program's command line, as text. Any thread; takes memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "nimble/internal/process/quiet_file.h"

namespace nimble::shim {

inline std::string command_line() {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  std::string text;
  read_quiet("/proc/self/cmdline", kMost, text);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

}  // namespace nimble::shim
