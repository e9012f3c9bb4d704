// `nimble check schedule.json`: reads a schedule as replay would, and says what is in it or what is wrong with it.
#pragma once

#include <string>

namespace nimble::launcher {

// Prints one line on stdout and returns 0, or one line on stderr that names file and field and returns 2.
int check_schedule(const std::string& path);

}  // namespace nimble::launcher
