// Writes a schedule as the JSON of docs/reference/formats.md: keys in a fixed order, one op per line, the same bytes
// for the same schedule. Pure; any thread. No errors.
#pragma once

#include <string>

#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

std::string schedule_text(const Schedule& schedule);

}  // namespace nimble::analyzer
