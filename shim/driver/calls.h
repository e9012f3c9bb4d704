// The call table as C++: an id, a name and a type for every line of driver_calls.def.
//
// With __CUDA_API_VERSION_INTERNAL (set for the whole of shim/) cuda.h declares every version of every entry point
// under its own name, so decltype(&::cuX_v2_ptsz) is that very symbol's type.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#error "shim/ is compiled with __CUDA_API_VERSION_INTERNAL"
#endif
#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "shim/driver/graphics_calls.h"

namespace nimble::shim {

enum CallId : std::uint16_t {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) id_##symbol,
#include "nimble/internal/driver_calls.def"
  kCallCount
};

inline constexpr const char* kCallSymbols[kCallCount] = {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) #symbol,
#include "nimble/internal/driver_calls.def"
};

template <CallId id>
struct CallType;
#define NIMBLE_CALL(symbol, default_stream, decoder, host) \
  template <>                                              \
  struct CallType<id_##symbol> {                           \
    using Function = decltype(::symbol);                   \
  };
#include "nimble/internal/driver_calls.def"

}  // namespace nimble::shim
