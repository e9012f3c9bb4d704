// A kernel, and the functions that it calls, as steps in which values move: the input of the data flow in
// analyzer/kernel_code/ptx_flow/flow.h. It leaves out computations that no address can come from, control flow, and
// predicates, except tests of parameters that accesses depend on (analyzer/kernel_code/ptx_flow/guards.h).
//
// A value is kept in a cell. Registers have one; parameters of functions and local variables have two for each of their
// words, and accesses at known places use these directly. An unknown instruction makes the whole an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/kernel_code/ptx/body.h"
#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/ptx_flow/guards.h"

namespace nimble::code {

inline constexpr std::uint32_t kNoCell = 0xffffffffu;

// Where an address can come from. First come the 8-byte words of the packed parameters, then their halves, which
// are parts of addresses at most, then these, then `extra` roots.
enum PtxRoot : std::uint32_t {
  kRootMemory,   // it was loaded from global memory
  kRootUnknown,  // from a parameter that is not aligned, or from nowhere
  kRootCode,     // it is the address of a function
  kRootShared,   // it points into shared memory
  kRootFixed,    // how many there are
};

// A root of one kernel's own: a variable of the module, a local variable, or the space of a parameter.
struct PtxExtraRoot {
  PtxSpace space = PtxSpace::global;
  std::string_view name;
  // param: its words among those of the packed parameters. local: its words, each with two cells for its contents, what
  // was stored as 64 bits and what was stored as less.
  std::uint32_t first = 0, words = 0;
};

struct PtxStep {
  enum class Op : std::uint8_t {
    keep,     // dst may be src
    combine,  // dst is computed from src and `other`, either of which may be an address: added, masked
    either,   // likewise, but the operand that is not an address may be all that is left
    number,   // dst may be a number: if src is, or is no cell
    weaken,   // dst is computed from src, and not an address itself: scaled, cut, converted
    restore,  // dst may be put together from parts that src holds
    raise,    // dst holds src as its upper part
    lower,    // shifts down: an upper part becomes a number, all else is kept
    load,     // dst, from the memory at the address in `address`
    store,    // src, to the memory there
    touch,    // the memory there is read or written, without an effect on other cells
  };
  Op op = Op::keep;
  PtxSpace space = PtxSpace::generic;
  bool wide = false;                   // load, store: 64 bits
  bool reads = false, writes = false;  // touch
  std::uint32_t dst = kNoCell, src = kNoCell, address = kNoCell;
  std::uint32_t other = kNoCell;  // combine: like src; no cell means a constant
  std::uint32_t when = 0;         // load, store, touch: one of the steps' conditions
};

struct PtxSteps {
  std::string error;   // what is not understood
  std::string hidden;  // the first thing found that may let the kernel reach memory that neither it nor a name leads to
  std::string variable;     // the first variable of the module that it may reach
  std::uint32_t words = 0;  // of the packed parameters
  std::uint32_t cells = 0;
  std::vector<PtxStep> steps;
  std::vector<PtxConditions> conditions{{}};  // the first is empty
  std::vector<PtxExtraRoot> extra;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> given;  // cells that hold a root from the start: (cell, root)
  std::uint32_t shared_wide = 0, shared_narrow = 0;            // shared memory: what was stored as 64 bits, or as less

  std::uint32_t half_root(std::uint32_t half) const { return words + half; }
  std::uint32_t root(PtxRoot which) const { return 3 * words + which; }
  std::uint32_t extra_root(std::size_t which) const { return root(kRootFixed) + static_cast<std::uint32_t>(which); }
  std::uint32_t roots() const { return extra_root(extra.size()); }
};

PtxSteps ptx_steps(const PtxModule& module, const PtxFunction& kernel);

}  // namespace nimble::code
