// The words of a launch's parameters that may be addresses of device memory, and whether one leads to memory that is
// watched. Inline: each launch of a program is asked.
//
// No state, no errors.
#pragma once

#include <cstdint>
#include <cstring>

#include "nimble/internal/call.h"
#include "nimble/internal/launch_params.h"
#include "replayer/onlookers/watched_memory.h"

namespace nimble {

inline constexpr std::uint32_t kMostParameterBytes = 4096;  // more of them may hold anything
// No device has memory for a program to use below the first, and none of the processors above the second.
inline constexpr std::uint64_t kLeastAddress = 1 << 16, kMostAddress = std::uint64_t{1} << 57;

// Calls `leads_to` with each of them, until it returns true. Whether the parameters can be read.
template <class LeadsTo>
[[gnu::always_inline]] inline bool each_address(const Call& call, const FunctionInfo& function,
                                                const LeadsTo& leads_to) {
  // A pointer is aligned as such; a parameter smaller than one holds none.
  constexpr std::uint32_t kPointer = sizeof(std::uint64_t);
  if (!function.params || function.param_bytes > kMostParameterBytes) return false;
  const std::uint8_t* const packed = call.launch.kernel_params ? nullptr : packed_params(call, function);
  if (!call.launch.kernel_params && !packed && function.param_bytes != 0) return false;
  void* const* value = call.launch.kernel_params;
  for (const ParamLayout& param : *function.params) {
    const auto* const bytes = packed ? packed + param.offset : static_cast<const std::uint8_t*>(*value++);
    for (std::uint32_t at = (kPointer - param.offset % kPointer) % kPointer; at + kPointer <= param.size;
         at += kPointer) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + at, sizeof word);
      if (word >= kLeastAddress && word < kMostAddress && leads_to(word)) return true;
    }
  }
  return true;
}

inline bool uses_variables(const FunctionInfo& function) { return !function.self_contained && !function.constants; }

// touches() of a launch.
[[gnu::always_inline]] inline bool launch_touches(const Call& call, CallContext& context,
                                                  const WatchedMemory& watched) {
  const WatchedMemory::Kinds kinds = watched.kinds();
  if (kinds.none()) return false;
  if (kinds.anything) return true;
  const FunctionInfo& function = context.function(call.launch.function);
  if (kinds.variables && uses_variables(function)) return true;
  bool found = false;
  return !each_address(call, function, [&](std::uint64_t word) {
    return found = found || (watched.may_have(word) && watched.has(word, word + 1));
  }) || found;
}

}  // namespace nimble
