// Fatbins: containers of the same code for several architectures, as machine code (cubins) and as PTX, plain or
// compressed with LZ4 or Zstandard. The layout is that of nvcc 11 to 13; NVIDIA does not document it.
//
// Pure functions over memory; any thread. Bounds are checked, and no number in the file makes it allocate without a
// limit: any input gives entries or an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/kernel_code/bytes.h"

namespace nimble::code {

inline constexpr std::uint32_t kFatbinMagic = 0xBA55ED50, kFatbinWrapperMagic = 0x466243B1;

// No entry of the libraries that NVIDIA ships is larger than 140 MB, or compressed to less than a hundredth.
inline constexpr std::uint64_t kMostExpandedBytes = std::uint64_t{256} << 20, kMostExpansion = 512;

struct FatbinEntry {
  enum class Kind : std::uint8_t { ptx, elf, other };
  enum class Packing : std::uint8_t { plain, lz4, zstd, unknown };

  Kind kind = Kind::other;
  Packing packing = Packing::plain;
  unsigned arch = 0;          // 90 for sm_90 and for compute_90
  std::uint64_t variant = 0;  // the flags that tell sm_90a and sm_100f from sm_90 and sm_100
  Bytes payload;              // as it is in the file
  std::uint64_t expanded_bytes =
      0;  // the size that it claims to have once expanded; for plain entries the payload's size
};

struct Fatbin {
  std::vector<FatbinEntry> entries;
  std::string error;  // empty if all entries could be separated
};

// How many bytes a fatbin takes, from its first ones; 0 if these are not those of a fatbin.
std::uint64_t fatbin_bytes(Bytes first);

// The entries of a fatbin. They refer to `bytes`.
Fatbin read_fatbin(Bytes bytes);

// The entry as it was before it was compressed, in `out`, whose memory is reused; or false, and why.
bool expand(const FatbinEntry& entry, std::string& out, std::string& why);

}  // namespace nimble::code
