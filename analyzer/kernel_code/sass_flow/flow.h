// What a kernel reads and writes through each of its parameters, proven from its machine code.
//
// For every access: from which 8-byte words of the packed parameters its address may come. The same question as that of
// analyzer/kernel_code/ptx_flow/flow.h, the same answer, and the same rule as its basis: arithmetic on a pointer stays
// within the object that it points to. Here a register has 32 bits, and an address is in two of them. Of each value it
// is known of which roots it may be the lower half, and of which the upper; an address comes from a root of which it
// has both. Values are those of single assignment form, so the order of instructions counts, but for memory of the
// thread's and the block's own: what was ever put there may come from there, local memory by its words where these are
// known. Where an address may come from elsewhere as well, and parameters decide whether it does, that is a doubt
// (AddressExtents::doubts), which launches may exclude; else the kernel is not understood.
//
// What it does not understand is never guessed at. A pure function; any thread.
#pragma once

#include <string_view>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::code::sass {

// `elf` must have no error. Parameters are as the file has them: offsets and sizes, and no names. Their offsets may be
// others than those of the PTX: a parameter that is aligned to more than 16 bytes is so in the constant bank.
PtxProof prove_kernel(const Elf& elf, std::string_view name);

}  // namespace nimble::code::sass
