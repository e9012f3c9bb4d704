// Which parameters of a launch decide whether the kernel does something that would leave its accesses unproven.
//
// Pure functions; any thread. No errors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::analyzer {

struct Decided {
  std::string cause;                                           // what it may do, without its place
  std::vector<std::pair<std::uint32_t, std::uint32_t>> bytes;  // of the parameters: [begin, end), ascending
  bool shape = false;                                          // and the sizes of the grid and its blocks
  bool operator==(const Decided&) const = default;
};

std::vector<Decided> decided_by_launch(const code::PtxProof& proof);

// "bytes 32-35, byte 40 and the launch's shape"
std::string spoken_numbers(const Decided& decided);

}  // namespace nimble::analyzer
