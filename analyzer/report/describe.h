// Short texts for people: an op, a size, a duration. Pure functions over an immutable Analysis; any thread. No errors.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/analysis.h"

namespace nimble::analyzer {

// "launch add<float>(...)", "copy 4.0 KiB pinned -> device". At most `width` characters.
std::string describe_op(const Analysis& analysis, std::uint32_t op, std::size_t width = 60);

// "object 3 (device, 4.0 KiB, step-local)".
std::string describe_object(const Analysis& analysis, std::uint32_t object);

// A function's readable name without its parameters.
std::string kernel_name(const TraceFunction& function);

// "1 pair", "more than 1000005 pairs".
std::string races_text(const Dependencies& dependencies);

// "1 op", "2 ops".
std::string plural(std::uint64_t n, const std::string& noun);

std::string bytes_text(std::uint64_t bytes);
std::string us_text(double us);

// At most `width` characters of `text`, with "..." where it was cut; control characters become '?'.
std::string shortened(std::string text, std::size_t width);

}  // namespace nimble::analyzer
