// The records of a bundle: one step of a program with all that it takes to run it without the program.
// shim/record/observers/bundle/ writes it, replayer/bundle/ reads it. The grammar on disk stands in
// docs/reference/formats.md.
//
// Plain data without behaviour; whoever read or built a Bundle owns it. Addresses are those of the recorded process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble {

inline constexpr int kBundleVersion = 1;

// The files of a bundle, beside the images, which the manifest names.
inline constexpr const char* kBundleManifest = "manifest.json";
inline constexpr const char* kBundleMemory = "memory.bin";
inline constexpr const char* kBundleTrace = "trace.json";

// Contents are kept in pieces of this size; the last piece of each may be shorter.
inline constexpr std::uint64_t kBundlePiece = std::uint64_t{64} << 10;

// Bytes as a list of pieces: indices into Bundle::pieces, kNone for one that holds zeros alone.
using BundleContent = std::vector<std::uint32_t>;

// Where a piece lies in memory.bin.
struct BundlePiece {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint64_t digest = 0;  // XXH3-64
};

// Code that kernels of the step come from, in a file of its own.
struct BundleImage {
  std::string file;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // XXH3-64
};

// An allocation that the step may touch. One that is older than the step has its content at the start, one that
// outlives it that at the end.
struct BundleObject {
  std::uint64_t address = 0, size = 0;
  MemoryKind memory = MemoryKind::device;
  std::optional<BundleContent> start, end;
  std::string global;           // a variable's name
  std::uint32_t image = kNone;  // and the image that it is of
};

// What the host's memory held for a copy, when the program made the call: what the copy was to read, or what it had
// brought by the time that the call returned. `bytes` from `address`, gaps between rows included.
struct BundlePayload {
  std::uint32_t op = 0;  // counted from the step's first
  std::uint64_t address = 0, bytes = 0;
  BundleContent content;
};

struct Bundle {
  // The step: all ops of the trace that ran, from the one with this seq to the one with that.
  std::uint64_t first_seq = 0, last_seq = 0;
  std::uint32_t ops = 0;
  std::vector<std::uint32_t> images_of_ops;  // per op: the image of a launch's kernel; kNone for other ops
  std::vector<BundleImage> images;
  std::vector<BundleObject> objects;
  std::vector<BundlePayload> sources;  // of copies from the host
  std::vector<BundlePayload> results;  // of copies to the host's memory that the driver does not know
  std::vector<BundlePiece> pieces;
  std::vector<std::string> hidden;  // ways by which the step may reach memory that is not here, for people
};

}  // namespace nimble
