// Memory contents in deduplicated pieces: a step's start and end have most of their content in common.
//
// Holds the pieces in memory until they are written. Not synchronised.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/bundle.h"

namespace nimble::shim {

// Thrown when the content would exceed the limit.
class ContentLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ContentStore {
 public:
  explicit ContentStore(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Adds one content, portion by portion.
  class Writer {
   public:
    Writer(ContentStore& store, BundleContent& content) : store_(store), content_(content) {}
    // Throws ContentLimit.
    void add(std::span<const std::uint8_t> bytes);
    void finish();

   private:
    ContentStore& store_;
    BundleContent& content_;
    std::vector<std::uint8_t> pending_;
  };

  BundleContent keep(std::span<const std::uint8_t> bytes);
  std::uint64_t bytes() const { return bytes_; }

  // Appends the pieces that the content names to the file and to `pieces`, and renumbers the content to these. False if
  // the file could not be written.
  bool write(std::FILE* file, BundleContent& content, std::vector<BundlePiece>& pieces);

 private:
  std::uint32_t put(std::span<const std::uint8_t> piece);

  struct Kept {
    std::string bytes;
    std::uint32_t written = kNone;  // its place in the file
  };
  const std::uint64_t limit_bytes_;
  std::uint64_t bytes_ = 0, written_ = 0;
  std::vector<Kept> kept_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> known_;  // by a digest of 128 bits
};

}  // namespace nimble::shim
