// The records of a bundle: one step of a program with everything needed to run it without the program.
// shim/record/observers/bundle/ writes it, replayer/bundle/ reads it. docs/reference/formats.md has the grammar on
// disk.
//
// Plain data without behaviour. Addresses are those of the recorded process.
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

// Contents are split into pieces of this size; the last may be shorter.
inline constexpr std::uint64_t kBundlePiece = std::uint64_t{64} << 10;

// Bytes as a list of pieces: indices into Bundle::pieces, kNone for a piece of zeros.
using BundleContent = std::vector<std::uint32_t>;

// Where a piece lies in memory.bin.
struct BundlePiece {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint64_t digest = 0;  // XXH3-64
};

// An image with kernels of the step, in its own file.
struct BundleImage {
  std::string file;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // XXH3-64
};

// An allocation that the step may touch. One older than the step has its content at the start, one that outlives it its
// content at the end.
struct BundleObject {
  std::uint64_t address = 0, size = 0;
  MemoryKind memory = MemoryKind::device;
  std::optional<BundleContent> start, end;
  std::string global;           // a variable's name
  std::uint32_t image = kNone;  // and its image
};

// The host memory of a copy: its source when the program made the call, or its result when the call returned. `bytes`
// from `address`, including gaps between rows.
struct BundlePayload {
  std::uint32_t op = 0;  // counted from the step's first
  std::uint64_t address = 0, bytes = 0;
  BundleContent content;
};

struct Bundle {
  // The step: all executed ops of the trace from the first seq to the last.
  std::uint64_t first_seq = 0, last_seq = 0;
  std::uint32_t ops = 0;
  std::vector<std::uint32_t> images_of_ops;  // per op: the image of a launch's kernel; kNone for other ops
  std::vector<BundleImage> images;
  std::vector<BundleObject> objects;
  std::vector<BundlePayload> sources;  // of copies from the host
  std::vector<BundlePayload> results;  // of copies to host memory that the driver does not know
  std::vector<BundlePiece> pieces;
  std::vector<std::string> hidden;  // ways in which the step may reach memory that is not here, for messages
};

}  // namespace nimble
