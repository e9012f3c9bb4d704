// Reads schedule.json and checks everything that docs/reference/formats.md says must hold, so that the rest of the
// replayer may index and add without checking. Pure functions; no driver.
#pragma once

#include <stdexcept>
#include <string>

#include "nimble/internal/schedule.h"

namespace nimble {

// The file is not a schedule that can be used. what() is one line: file, field, and what is wrong with it.
class ScheduleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws ScheduleError.
Schedule read_schedule(const std::string& path);

// The same for a text; `source` names it in errors.
Schedule parse_schedule(const std::string& text, const std::string& source);

}  // namespace nimble
