// Texts that describe ops, objects and kernels of a step, for people. Pure; any thread. No errors.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/stages/read_steps.h"

namespace nimble::analyzer {

// "launch add<float>(...)", "copy 4.0 KiB pinned -> device". At most `width` characters.
std::string describe_op(const StepReading& step, std::uint32_t op, std::size_t width = 60);

// "object 3 (device, 4.0 KiB, step-local)".
std::string describe_object(const StepReading& step, std::uint32_t object);

}  // namespace nimble::analyzer
