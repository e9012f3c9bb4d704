// The findings of a check of accesses: counts, and each fault with all that was claimed about the launch.
//
// Any thread; one lock. Throws std::bad_alloc alone.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analyzer/service/launch_accesses.h"
#include "nimble/internal/call.h"
#include "shim/check/mapped_memory.h"

namespace nimble::shim {

// A launch that did something that it is said not to do.
struct AccessFault {
  const FunctionInfo* function = nullptr;
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;
  std::vector<std::uint8_t> params;  // packed
  LaunchAccesses said;
  MappedMemory::Restriction restricted;
  CUresult result = CUDA_SUCCESS;
};

class CheckReport {
 public:
  // The program has launched a kernel.
  void launched(const FunctionInfo& function);
  // One that was to be checked: nothing is proven of it; or it was not checked for another reason.
  void unknown(const FunctionInfo& function, const std::string& why);
  void skipped(std::string_view why);
  // It was checked, and did as it is said.
  void passed(const FunctionInfo& function, const MappedMemory::Restriction& restricted);
  void failed(AccessFault fault);
  // Memory that no check can keep a launch from.
  void left_open(std::string_view what);
  // The check has ended early.
  void stopped(const std::string& why);

  bool any_launch() const;
  bool any_fault() const;
  // For the log.
  std::string line() const;
  static std::string line(const AccessFault& fault);
  // As counters are written (replayer/stats/counters.h): a message for the user, or nothing.
  std::string write(const std::string& path) const;

 private:
  struct Kernel {
    std::uint64_t launches = 0, checked = 0, unknown = 0;
    std::string why_unknown;  // the last reason
  };

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<const FunctionInfo*, Kernel> kernels_;
  std::uint64_t launches_ = 0, checked_ = 0, unknown_ = 0, closed_ = 0, read_only_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> skipped_, left_open_;
  std::vector<AccessFault> faults_;
  std::string stopped_;
};

}  // namespace nimble::shim
