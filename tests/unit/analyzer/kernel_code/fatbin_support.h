// Fatbins for tests, laid out as nvcc does it.
#pragma once

#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "analyzer/kernel_code/fatbin.h"

namespace nimble::code::test {

struct EntryToWrite {
  std::uint16_t kind;  // 1: PTX, 2: ELF
  std::uint32_t arch;
  std::string payload;
  FatbinEntry::Packing packing = FatbinEntry::Packing::plain;
  std::uint64_t flags = 0;
};

inline std::string write_fatbin(const std::vector<EntryToWrite>& entries) {
  using Packing = FatbinEntry::Packing;
  std::string body;
  for (const EntryToWrite& entry : entries) {
    std::string packed = entry.payload;
    if (entry.packing == Packing::zstd) {
      packed.resize(ZSTD_compressBound(entry.payload.size()));
      packed.resize(ZSTD_compress(packed.data(), packed.size(), entry.payload.data(), entry.payload.size(), 3));
    } else if (entry.packing == Packing::lz4) {
      packed.resize(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(entry.payload.size()))));
      packed.resize(static_cast<std::size_t>(LZ4_compress_default(entry.payload.data(), packed.data(),
                                                                  static_cast<int>(entry.payload.size()),
                                                                  static_cast<int>(packed.size()))));
    }
    const auto packed_bytes = static_cast<std::uint32_t>(packed.size());
    if (entry.packing != Packing::plain) packed.resize((packed.size() + 7) / 8 * 8);
    std::string header(64, '\0');
    const auto put = [&header](std::size_t at, auto value) { std::memcpy(header.data() + at, &value, sizeof value); };
    put(0, entry.kind);
    put(2, std::uint16_t{0x101});
    put(4, std::uint32_t{64});
    put(8, std::uint64_t{packed.size()});
    if (entry.packing != Packing::plain) put(16, packed_bytes);
    put(28, entry.arch);
    put(40, std::uint64_t{entry.flags | (entry.packing == Packing::zstd  ? 0x8000u
                                         : entry.packing == Packing::lz4 ? 0x2000u
                                                                         : 0u)});
    if (entry.packing != Packing::plain) put(56, std::uint64_t{entry.payload.size()});
    body += header + packed;
  }
  std::string result(16, '\0');
  const auto put = [&result](std::size_t at, auto value) { std::memcpy(result.data() + at, &value, sizeof value); };
  put(0, kFatbinMagic);
  put(4, std::uint16_t{1});
  put(6, std::uint16_t{16});
  put(8, std::uint64_t{body.size()});
  return result + body;
}

}  // namespace nimble::code::test
