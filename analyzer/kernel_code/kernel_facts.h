// What the code of an image tells about one of its kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::code {

// How certain it is that the code that was read is what runs.
enum class Origin : std::uint8_t {
  none,
  same,   // machine code for this device; or PTX that the driver compiles, or that this device's machine code was
          // compiled from, as its virtual architecture tells
  other,  // the machine code was made for another architecture: from the same source, which may tell them apart
};

struct KernelFacts {
  bool self_contained = false;  // it reaches memory through its parameters alone
  bool constants = false;       // it would, except for constant variables of its image, which no kernel can write
  std::string why;              // if it does not, or that is not known

  // What the code that runs, or else its PTX, proves about its accesses; nothing, and the reason, if that is nothing.
  std::optional<std::vector<PtxAccess>> accesses;
  std::string why_not_proven;
  bool follows_memory = false;  // in launches that nothing is proven of the code may follow addresses from memory
  Origin origin = Origin::none;
  std::vector<PtxGlobal> globals;                               // variables of its image that it may touch
  std::vector<std::uint32_t> stored;                            // words that it may store to memory as they are
  AddressExtents extents;                                       // how far the accesses get, by the code that runs
  std::vector<std::pair<std::uint32_t, std::uint32_t>> params;  // as the PTX has them: offset, size
  std::uint64_t image_digest = 0;                               // XXH3-64 of the whole image; 0 if it could not be read
  bool operator==(const KernelFacts&) const = default;
};

}  // namespace nimble::code
