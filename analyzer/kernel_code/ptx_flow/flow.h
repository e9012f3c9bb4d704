// What a kernel reads and writes through each of its parameters, proven from its PTX.
//
// For every load, store and atomic: from which 8-byte words of the packed parameters its address may come. The analysis
// takes no notice of the order of instructions, of predicates, or of who calls whom: a register holds the union of
// everything that is ever put into it. Only where all that touches some memory comes behind a test of a parameter for a
// number is that a condition of it (analyzer/kernel_code/ptx_flow/guards.h). What it does not understand is never
// guessed at.
//
// It rests on one rule of C++: arithmetic on a pointer stays within the object that it points to. An address is a
// pointer plus a number; a number is what was scaled, cut to 32 bits, or converted, and a word of a parameter, or a
// 64-bit value from memory, may be the pointer. Where that could be a value from memory, the kernel follows pointers
// that no parameter shows, and nothing is proven; nor where it could be a number alone, since that may be a pointer in
// other clothes: one with a tag, or in units of more than a byte.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/ptx_flow/guards.h"

namespace nimble::code {

// Memory that the kernel may touch: by a pointer that is in one of these words (byte offsets into the packed
// parameters). Nearly always there is one; two where it chooses, or where it adds two 64-bit words.
struct PtxAccess {
  std::vector<std::uint32_t> at;
  bool reads = false, writes = false;
  PtxConditions when = {};  // it happens only where all of these hold
  bool operator==(const PtxAccess&) const = default;
};

// A variable of the module that it may touch.
struct PtxGlobal {
  std::string name;
  bool reads = false, writes = false;
  bool operator==(const PtxGlobal&) const = default;
};

struct PtxProof {
  bool understood = false;
  std::string why;                  // where it is not
  std::vector<PtxAccess> accesses;  // ascending, one for each list of words
  std::vector<PtxGlobal> globals;   // ascending by name
  std::vector<std::uint32_t>
      stored;  // words that it may store to memory, in pieces or whole: pointers for others to follow

  // Whether the kernel reaches memory by its parameters alone: through them or through tables that they point to. This
  // can be told of more kernels than the above.
  bool self_contained = false;
  std::string why_not_self_contained;

  std::vector<PtxParam> params;  // as the PTX declares them; names refer to its text
};

PtxProof prove_kernel(const PtxModule& module, const PtxFunction& kernel);

}  // namespace nimble::code
