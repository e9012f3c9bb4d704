// An op of the schedule as messages name it.
#pragma once

#include <cstdint>
#include <string>

#include "nimble/internal/schedule.h"

namespace nimble {

// "op 2 (launch relu)".
std::string op_text(const Schedule& schedule, std::uint32_t op);

}  // namespace nimble
