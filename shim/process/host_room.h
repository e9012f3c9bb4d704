// Whether the host still has some memory: what we take of the last of it the program, or the driver, would miss.
//
// Any thread; allocates nothing. Asks the kernel, not malloc, which may have some for small pieces.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace nimble::shim {

inline bool host_has_room() noexcept {
  constexpr std::size_t kLittle = std::size_t{1} << 20;
  void* const piece = ::mmap(nullptr, kLittle, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (piece == MAP_FAILED) return false;
  ::munmap(piece, kLittle);
  return true;
}

}  // namespace nimble::shim
