// What memory a call's op may touch, as far as the call tells: for ops that are none of a schedule's or a graph's, of
// which nobody has analyzed anything.
//
// A copy and a set touch what they name. A kernel is taken to read and write what its parameters lead to, whatever they
// are declared to be; of what is reached through pointers in memory it must be told by whoever asks, as of variables.
// Anything else may touch anything. Allocates nothing; any thread. No errors.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "nimble/call.h"
#include "nimble/launch_params.h"

namespace nimble {

// Whether an op of the kind may touch memory of the device's that others know of. A host function reaches but what the
// host reaches, too, and whatever is there is watched anyway.
inline constexpr bool touches_memory(CallKind kind) {
  return kind == CallKind::launch || kind == CallKind::copy || kind == CallKind::set ||
         kind == CallKind::graph_launch || kind == CallKind::opaque;
}

// Whether `touches(address, bytes, writes)` is true of something that a copy or a set touches, or `leads(word)` of a
// word of a kernel's parameters; or whether the op may touch anything. `beyond`: what a kernel may touch that its
// parameters do not lead to counts.
template <class Touches, class Leads>
bool any_touched(const Call& call, CallContext& context, bool beyond, Touches touches, Leads leads) {
  constexpr std::uint32_t kMostBytes = 4096;  // of parameters: more of them may hold anything
  const auto region = [&](const Region& at, bool writes) {
    const std::uint64_t bytes = call.height == 0 ? 0 : (call.height - 1) * at.pitch + call.width;
    return bytes != 0 && touches(at.address, bytes, writes);
  };
  switch (call.kind) {
    case CallKind::copy:
      return region(call.dst, true) || region(call.src, false);
    case CallKind::set:
      return region(call.dst, true);
    case CallKind::launch: {
      const FunctionInfo& function = context.function(call.function);
      std::array<std::uint8_t, kMostBytes> params;
      if (function.param_bytes > params.size() || !pack_params(call, function, params.data())) return true;
      if (beyond && !function.self_contained && !function.constants) return true;
      for (std::uint32_t at = 0; at + sizeof(std::uint64_t) <= function.param_bytes; at += 4) {
        std::uint64_t word = 0;
        std::memcpy(&word, params.data() + at, sizeof word);
        if (leads(word)) return true;
      }
      return false;
    }
    default:
      return touches_memory(call.kind);
  }
}

}  // namespace nimble
