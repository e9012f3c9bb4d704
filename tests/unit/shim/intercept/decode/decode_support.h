// What the tests of decoders share. No driver is loaded: what they would ask it stays unknown.
#pragma once

#include "shim/intercept/decode/all_decoders.h"

namespace nimble::shim::decode {

inline constexpr Entry kEntry{DefaultStream::legacy};
inline const CUstream kStream = reinterpret_cast<CUstream>(0x1000);

template <class Decoder, class... Args>
Call decode(Args... args) {
  Call call;
  call.symbol = "cuSomething";
  Decoder::before(kEntry, call, args...);
  return call;
}

}  // namespace nimble::shim::decode
