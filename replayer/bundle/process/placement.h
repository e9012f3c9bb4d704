// Places the step's memory in this process: at the recorded addresses, if they are available.
//
// Memory that holds pointers is only right at its old addresses, so we request these: for the device by address
// reservations with a hint, for the host by a fixed mapping that is registered. If an address is taken, the memory
// around it moves as a block, and parameters are translated; for pointers in memory ask moved(). Variables lie where
// the driver puts their image. The end of an object, which kernels may use as a bound, moves with the object.
//
// Owns all of that memory. One thread, with the driver's context current. Errors: DriverError, Refused.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nimble/internal/bundle.h"
#include "replayer/bundle/process/live_driver.h"

namespace nimble::bundle {

class Placement {
 public:
  // Throws DriverError, or Refused if the bundle has memory of a kind that is not available here.
  Placement(LiveDriver& driver, const Bundle& bundle);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Once the images are loaded: finds the variables.
  void add_globals(const Bundle& bundle, const std::vector<CUmodule>& modules);

  // Whether all of the range belongs to the step's objects; on_host: to those in host memory.
  bool holds(std::uint64_t address, std::uint64_t bytes) const { return place_of(address, bytes) != nullptr; }
  bool on_host(std::uint64_t address, std::uint64_t bytes) const;
  // Where a byte of an object is here; the address itself if it belongs to none.
  std::uint64_t here(std::uint64_t address) const;
  // The same for a word of a kernel's parameters, which may also be an object's end, or no address at all. Throws
  // Refused if that cannot be told and would matter.
  std::uint64_t word_here(std::uint64_t word) const;
  // Whether the address, in an object or at its end, corresponds to this address here.
  bool leads_to(std::uint64_t address, std::uint64_t here) const;
  // Whether the word may be an address of moved memory.
  bool moved(std::uint64_t word) const;
  bool any_moved() const { return any_moved_; }

  std::uint64_t device_bytes() const { return device_bytes_; }
  std::uint64_t host_bytes() const { return host_bytes_; }

 private:
  // Memory allocated in one piece: all objects on adjacent pages.
  struct Block {
    std::uint64_t end = 0, here = 0;  // recorded end; address of its begin in this process
    bool mapped = false;              // device memory
    CUmemGenericAllocationHandle handle = 0;
  };
  // All bytes of objects that moved together, merging neighbours.
  struct Place {
    std::uint64_t end = 0, shift = 0;  // recorded end; what to add to an address, modulo 2^64
    bool host = false;
  };
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // begin -> end, apart
  using Blocks = std::map<std::uint64_t, Block>;          // by recorded begin
  using Places = std::map<std::uint64_t, Place>;          // by recorded begin, disjoint

  static void add(Ranges& ranges, std::uint64_t begin, std::uint64_t end);
  void place_on_device(std::uint64_t begin, std::uint64_t end, std::uint64_t granularity);
  void place_on_host(std::uint64_t begin, std::uint64_t end);
  void release();
  const Place* place_of(std::uint64_t address, std::uint64_t bytes) const;
  const Place* place_ending_at(std::uint64_t address) const;
  bool in_moved_block(std::uint64_t address) const;

  LiveDriver& driver_;
  Blocks device_, host_;  // pages may overlap: the device's are large
  Places places_;
  bool any_moved_ = false;
  std::uint64_t device_bytes_ = 0, host_bytes_ = 0;
};

}  // namespace nimble::bundle
