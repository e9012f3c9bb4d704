// What a kernel does with each of its parameters, piece by piece: a proof turned from accesses to parameters.
//
// Pure; any thread. No errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::analyzer {

// Neighbouring words of a parameter that are used alike. `uses` is empty if none of them is ever an address.
struct PieceUse {
  std::uint32_t begin = 0, end = 0;   // bytes of the packed parameters
  std::vector<code::PtxAccess> uses;  // `at` is empty where each word is an address by itself, else all that may be it
  bool stored = false;                // its value may be stored in memory
};

struct ParamUse {
  std::uint32_t offset = 0, size = 0;
  std::vector<PieceUse> pieces;  // all of the parameter, ascending
};

// Of an understood proof. If the parameters are not known, each run of words that are addresses is taken for one.
std::vector<ParamUse> param_uses(const code::PtxProof& proof);

// "bytes 0-7", "byte 4".
std::string bytes_range(std::uint32_t begin, std::uint32_t end);
// "written", "read and written, by one of the addresses in bytes 0-95"; "never an address".
std::string spoken(const PieceUse& piece);
// "read", "written", "read and written".
std::string spoken_mode(bool reads, bool writes);

}  // namespace nimble::analyzer
