// Short texts for people: a number of things, a size, a duration. Pure functions; any thread. No errors.
#pragma once

#include <cstdint>
#include <string>

namespace nimble::analyzer {

// "1 op", "2 ops".
std::string plural(std::uint64_t n, const std::string& noun);

// "4.0 KiB".
std::string bytes_text(std::uint64_t bytes);
// "12.5 us".
std::string us_text(double us);

// At most `width` characters of `text`, with "..." if it was cut; control characters become '?'.
std::string shortened(std::string text, std::size_t width);

}  // namespace nimble::analyzer
