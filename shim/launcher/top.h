// `nimble top FILE`: shows what a running program is doing, as it says in the file of NIMBLE_LIVE.
#pragma once

#include <string>

namespace nimble::launcher {

struct TopOptions {
  std::string path;
  double seconds = 1;  // between two looks
  bool once = false;
};

// Prints a line at each look, on a terminal always in the same place, until the program ends. 0; or a line on stderr
// and 2 if no program keeps the file.
int show_live(const TopOptions& options);

}  // namespace nimble::launcher
