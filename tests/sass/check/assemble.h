// Random programs in machine code of sm_90 and later, put in the place of a kernel's own: what compilers leave to
// chance. Pointers move between registers and local memory under conditions, which are kept, copied, compared anew;
// there are branches, loops, exits, and a function that several calls share. Halves of a pointer stay together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::code::oracle {

// The cubin with that kernel's code replaced; empty where it has no room or is of an earlier architecture. `pointers`:
// words of its parameters. The same seed gives the same.
std::string assembled(const std::string& cubin, std::string_view kernel, const std::vector<std::uint32_t>& pointers,
                      std::uint64_t seed);

}  // namespace nimble::code::oracle
