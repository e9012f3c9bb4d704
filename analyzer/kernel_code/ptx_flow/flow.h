// What a kernel reads and writes through each of its parameters, proven from its PTX.
//
// For every load, store and atomic: the 8-byte words of the packed parameters that its address may come from. The
// analysis ignores the order of instructions, predicates, and which function calls which: a register holds the union of
// everything that is ever put into it. Only if all accesses to some memory come after a test of a parameter for a
// number does that become their condition (analyzer/kernel_code/ptx_flow/guards.h). What it does not understand is
// never guessed at.
//
// It relies on one rule of C++: arithmetic on a pointer stays within the object that it points to. An address is a
// pointer plus a number; anything scaled, truncated to 32 bits, or converted is a number, and a word of a parameter, or
// a 64-bit value from memory, may be the pointer. If that could be a value from memory, the kernel follows pointers
// that no parameter shows, and nothing is proven; nor if it could be a number alone, because that may be a pointer in
// disguise: with a tag, or in units of more than a byte.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/ptx_flow/guards.h"
#include "nimble/internal/address_expressions.h"

namespace nimble::code {

// Memory that the kernel may touch: by a pointer in one of these words (byte offsets into the packed parameters).
// Nearly always there is one; two if it chooses, or if it adds two 64-bit words.
struct PtxAccess {
  std::vector<std::uint32_t> at;
  bool reads = false, writes = false;
  PtxConditions when = {};  // it happens only if all of these hold
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
  std::string why;                  // if it is not
  std::string untried;              // machine code: of instructions that no test has run against a proof; empty if none
  bool follows_memory = false;      // some access may be at an address that it loads from memory
  std::vector<PtxAccess> accesses;  // ascending, one for each list of words
  std::vector<PtxGlobal> globals;   // ascending by name
  std::vector<std::uint32_t>
      stored;              // words that it may store to memory, in pieces or whole: pointers that others may follow
  AddressExtents extents;  // how far these accesses get; PTX: only which numbers have a part in that

  // Whether the kernel reaches memory by its parameters alone: through them or through tables that they point to. This
  // can be told for more kernels than the above.
  bool self_contained = false;
  std::string why_not_self_contained;

  std::vector<PtxParam> params;  // as the PTX declares them; names refer to its text
};

PtxProof prove_kernel(const PtxModule& module, const PtxFunction& kernel);

}  // namespace nimble::code
