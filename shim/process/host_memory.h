// Reads memory of this process that may not exist, or no longer: returns an error instead of faulting.
//
// Any thread. Takes no lock, and allocates nothing.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace nimble::shim {

// Whether all of it was read; if not, errno says more, and part of `into` may have been written.
inline bool read_host_memory(std::uint64_t address, std::span<std::uint8_t> into) {
  for (std::size_t done = 0; done < into.size();) {
    const iovec local{into.data() + done, into.size() - done};
    const iovec remote{reinterpret_cast<void*>(address + done), into.size() - done};
    const ssize_t moved = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace nimble::shim
