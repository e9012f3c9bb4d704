// Addresses that look like two small numbers side by side, kept free of memory.
//
// Kernels often get sizes in pairs. Read as one word, the numbers n and h are the address h * 2^32 + n, and the
// driver's pools begin at 0x302000000 and grow from there: once a process has more than some 4 GiB, half of all kernels
// seem to point into it, and we cannot tell which do. So when the program initialises the driver, before there is any
// memory, we reserve the addresses from there on without mapping memory: the driver puts none there, and such pairs
// point nowhere. Memory then lies beyond them, at a multiple of 2^32 that few counts reach.
//
// That adds 64 TiB to the process's virtual size; none of it is committed, dumped or forked. If the address space is
// limited (RLIMIT_AS), we reserve nothing; if the program sets a limit later, we release everything first.
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

// Reserves what it can of [begin, end): all of it, else what it can of each half, down to ranges with the same upper 32
// bits. Adds what it got to `taken`. Releases what the driver gives elsewhere. Any thread.
void reserve_addresses(const AddressCalls& calls, std::uint64_t begin, std::uint64_t end,
                       std::vector<AddressRange>& taken);

// Releases all of it. What the driver refuses stays in `taken`, and its error is returned; ranges that it does not know
// (CUDA_ERROR_INVALID_VALUE) are dropped. One thread at a time.
CUresult give_back(const AddressCalls& calls, std::vector<AddressRange>& taken) noexcept;

// To be called when the program has initialised the driver; the first call counts, for the rest of the process.
// Reserves nothing where that might be in the way: on devices with short addresses, under sanitizers, which use these
// addresses, and under a limit. std::bad_alloc ends it. Any thread.
void keep_low_addresses_free();

// Releases what this process has reserved; a forked child leaves its parent's alone. The next call retries what the
// driver refuses. Any thread; calls the driver.
void give_addresses_back() noexcept;

}  // namespace nimble::shim
