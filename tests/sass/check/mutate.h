// Changes one kernel's machine code at random: other registers and predicates in some of its instructions. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nimble::code::oracle {

// The cubin with that kernel changed; empty where it has no code. The same seed gives the same.
std::string mutated(const std::string& cubin, std::string_view kernel, std::uint64_t seed);

}  // namespace nimble::code::oracle
