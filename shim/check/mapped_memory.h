// Memory in which each allocation is a mapping of its own, so that the device's access to it can be taken away, or
// restricted to reading.
//
// Allocations lie side by side in large reservations of addresses, so that one call of the driver changes many. What is
// released stays mapped for the next allocation of its size, up to a limit; from the moment when nothing runs that may
// still use it: callers say when that is.
//
// Owns all of it. One lock, never held while the driver is called. Any thread; but while accesses are changed no other
// thread may call it (shim/check/quiet.h). Of one device: that of the context that is current at the first allocation.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/check/protection.h"
#include "shim/rewrite/memory/mapping.h"

namespace nimble::shim {

class MappedMemory {
 public:
  struct Object {
    std::uint64_t address = 0, size = 0;
  };
  // What a launch may touch; all else is closed to it.
  struct Allowed {
    std::uint64_t address = 0;  // where the object begins
    bool writes = false;
  };
  struct Restriction {
    std::vector<Object> closed, read_only;
    bool good = true;  // the driver has done all of it
  };

  // How much unused memory stays mapped.
  static constexpr std::uint64_t kMostUnused = std::uint64_t{8} << 30;

  explicit MappedMemory(CallContext& context) : context_(context), mapping_(context) {}

  // The address of a new object; nothing if there is no memory, or the device cannot do this.
  std::optional<std::uint64_t> allocate(std::uint64_t size);
  // The object that begins there is released. False if there is none. Others may get its memory once settle() is told
  // of a later moment.
  bool release(std::uint64_t address);
  // The present moment; all that was released until then is used no more.
  std::uint64_t now() const;
  void settle(std::uint64_t moment);
  // How many bytes are released and not settled.
  std::uint64_t released() const;
  // Returns unused memory to the device. Whether there was any.
  bool give_back();
  // The context has ended, and with it all objects.
  void clear();

  // The object that holds the address.
  std::optional<Object> find(std::uint64_t address) const;
  // Whether it is an address in Nimble's mappings, with an object or none.
  bool holds(std::uint64_t address) const;
  bool empty() const;

  // Restricts what the device may touch; what was restricted before counts no more. Nothing may be running.
  Restriction restrict_to(std::span<const Allowed> allowed);
  // Opens all. False if the driver refuses some, which stays as it is. Throws nothing.
  bool open();
  bool is_restricted() const { return restricted_.load(std::memory_order_acquire); }

 private:
  // The smallest reservation.
  static constexpr std::uint64_t kRange = std::uint64_t{16} << 30;
  enum class State : std::uint8_t {
    busy,      // a thread is about to map or unmap it
    live,      // an object
    released,  // something may still use it
    unused,
    unmapped,  // addresses alone
  };
  struct Block {
    std::uint64_t bytes = 0, range = 0;
    std::uint64_t size = 0;  // of the object
    std::uint64_t released = 0;
    Physical physical = 0;
    State state = State::busy;
    Protection now = Protection::open;
  };
  using Blocks = std::map<std::uint64_t, Block>;  // by address

  Blocks::iterator take(std::uint64_t bytes, bool& mapped);
  bool fill(std::uint64_t address, std::uint64_t bytes, Physical& physical) const;
  void unmap(std::uint64_t most_kept, bool& any);
  std::vector<ProtectedPiece> pieces() const;
  bool change(std::span<const ProtectedPiece> pieces);

  CallContext& context_;
  const Mapping mapping_;
  std::atomic<bool> restricted_{false};
  mutable std::mutex mutex_;  // guards all below
  std::optional<CUdevice> device_;
  Blocks blocks_;
  std::uint64_t moment_ = 0, released_ = 0;
  std::uint64_t range_ = 0, range_end_ = 0, next_ = 0;  // where new blocks go
};

}  // namespace nimble::shim
