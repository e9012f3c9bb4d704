// Reads a bundle (docs/reference/formats.md), and checks every number, index and name in it, so that the rest of
// nimble-replay may index and add without checking.
//
// A bundle is untrusted input. Numbers in it never size an allocation: contents are read piece by piece, and lists are
// as long as the file makes them. A BundleFiles may be read by one thread at a time. Errors: InputError, which names
// the file, and the field if it concerns one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "nimble/internal/bundle.h"

namespace nimble::bundle {

inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMostImageBytes = std::uint64_t{1} << 31;
inline constexpr std::uint32_t kMostOps = 1u << 24;

// `source` names the text in errors.
Bundle parse_manifest(const std::string& text, const std::string& source);

// The size of the `index`th piece of a content of `size` bytes.
inline std::uint32_t piece_bytes(std::uint64_t size, std::uint64_t index) {
  const std::uint64_t left = size - index * kBundlePiece;
  return static_cast<std::uint32_t>(left < kBundlePiece ? left : kBundlePiece);
}

class BundleFiles {
 public:
  // Opens the folder, and reads its manifest.
  explicit BundleFiles(std::string folder);

  const Bundle& bundle() const { return bundle_; }
  std::string manifest_path() const { return path(kBundleManifest); }
  std::string trace_path() const { return path(kBundleTrace); }
  // The code of an image.
  std::string image(std::uint32_t index) const;
  // A piece of content; `out` has room for kBundlePiece bytes. Zeros if `piece` is kNone.
  void read(std::uint32_t piece, std::uint32_t bytes, std::uint8_t* out) const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  Bundle bundle_;
  std::unique_ptr<std::FILE, Close> memory_;
};

}  // namespace nimble::bundle
