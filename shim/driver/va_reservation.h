// Addresses that look like two small numbers side by side, kept free of memory.
//
// Kernels are told sizes in pairs. As one word the numbers n and h are the address h * 2^32 + n, and the driver lets
// its pools begin at 0x302000000 and grow from there: once a process has more than some 4 GiB, half of all kernels seem
// to name some of it, and nobody can tell which do. So when the program starts the driver, before there is any memory,
// the addresses from there on are reserved, without memory behind them: the driver puts none there any more, and
// numbers lead nowhere. Memory comes to lie behind them, at a multiple of 2^32 that few things are counted to.
//
// That is 64 TiB of the process's virtual size, of which nothing is committed, dumped or forked. Where the program's
// address space has a limit (RLIMIT_AS) none is taken; where the program sets one later, all is given back before that.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace nimble::shim {

// How addresses are asked for: the driver's calls, or a test's.
struct AddressCalls {
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) free = nullptr;
};

struct AddressRange {
  std::uint64_t address = 0, bytes = 0;
};

// Reserves what can be had of [begin, end): all of it, or of its halves what can be had, down to what has the same
// upper 32 bits. What that is, is added to `taken`. What the driver gives elsewhere goes back to it. Any thread.
void reserve_addresses(const AddressCalls& calls, std::uint64_t begin, std::uint64_t end,
                       std::vector<AddressRange>& taken);

// Gives all of it back to the driver once. What the driver refuses stays in `taken`, and the refusal is the answer; of
// what it does not know (CUDA_ERROR_INVALID_VALUE) nothing is ours any more. One thread at a time.
CUresult give_back(const AddressCalls& calls, std::vector<AddressRange>& taken) noexcept;

// To be called when the program has started the driver; the first call does it, for the rest of the process. Nothing is
// reserved where that might be in the way of something: devices that do not have addresses for it, and sanitizers,
// which have use for these addresses; and under a limit. std::bad_alloc leaves it at that. Any thread.
void keep_low_addresses_free();

// Gives back what this process has reserved; a forked child's parent keeps it. What the driver refuses is offered again
// by the next call. Any thread; calls the driver.
void give_addresses_back() noexcept;

}  // namespace nimble::shim
