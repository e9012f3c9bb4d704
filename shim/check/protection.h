// Which accesses to memory have to be changed, and in how few calls of the driver.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nimble::shim {

enum class Protection : std::uint8_t { closed, read_only, open };

// One mapping.
struct ProtectedPiece {
  std::uint64_t address = 0, bytes = 0;
  std::uint64_t range = 0;  // which reservation of addresses it lies in
  Protection now = Protection::open, wanted = Protection::open;
};

struct ProtectionChange {
  std::uint64_t address = 0, bytes = 0;
  Protection to = Protection::open;
};

// `pieces` by address. Mappings that lie side by side in a reservation, and are to get the same, take one change, also
// where some in their midst have it already.
std::vector<ProtectionChange> protection_changes(std::span<const ProtectedPiece> pieces);

}  // namespace nimble::shim
