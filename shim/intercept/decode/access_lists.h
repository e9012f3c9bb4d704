// Work with more accesses than one destination and one source, and the list of them (docs/reference/formats.md,
// `accesses`). Lists are made while the program's arguments are valid, and only when recording.
#pragma once

#include <vector>

#include "shim/intercept/decode/op.h"

namespace nimble::shim::decode {

struct AccessMode {
  bool reads, writes;
};
inline constexpr AccessMode kReads{true, false}, kWrites{false, true}, kReadsAndWrites{true, true};

inline void touch(std::vector<TraceAccess>& list, std::uint64_t address, std::uint64_t bytes, AccessMode mode) {
  if (bytes) list.push_back({address, bytes, mode.reads, mode.writes});
}

// The allocation that holds `address`, whatever its size.
inline void touch_whole(std::vector<TraceAccess>& list, std::uint64_t address, AccessMode mode) {
  if (address) list.push_back({address, 0, mode.reads, mode.writes});
}

// `depth` layers of `height` rows of `width` bytes. Includes the gaps between rows.
inline void touch_box(std::vector<TraceAccess>& list, std::uint64_t address, std::uint64_t width, std::uint64_t height,
                      std::uint64_t depth, std::uint64_t pitch, std::uint64_t layer_height, AccessMode mode) {
  if (!width || !height || !depth) return;
  const std::uint64_t rows = (depth - 1) * layer_height + (height - 1);
  touch(list, address, rows * pitch + width, mode);
}

// Work whose accesses are not decoded: ordered with everything before and after it.
struct Opaque {
  template <class... Args>
  static void before(Entry entry, Call& call, Args... args) {
    CUstream stream = nullptr;
    ((take(stream, args)), ...);
    op(entry, call, CallKind::opaque, stream);
    call.plain = false;
  }

 private:
  template <class T>
  static void take(CUstream&, T) {}
  static void take(CUstream& stream, CUstream argument) { stream = argument; }
};

}  // namespace nimble::shim::decode
