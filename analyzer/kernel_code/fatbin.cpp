#include "analyzer/kernel_code/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

namespace nimble::code {
namespace {

constexpr std::uint64_t kLz4 = 0x2000, kZstd = 0x8000, kVariant = 0x300000;
constexpr std::size_t kMostEntries = 4096;

struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // of all entries
};

struct EntryHeader {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;  // of the payload, including the padding before the next entry
  std::uint32_t packed_bytes, options_offset;
  std::uint16_t minor, major;  // of the PTX or ELF version
  std::uint32_t arch, name_offset, name_bytes;
  std::uint64_t flags, reserved, expanded_bytes;
};
static_assert(sizeof(EntryHeader) == 64);

bool expand_zstd(Bytes packed, std::string& out, std::string& why) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context) {
    why = "no memory to expand it";
    return false;
  }
  const std::size_t written = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(written) || written != out.size()) {
    why = "damaged Zstandard data";
    return false;
  }
  return true;
}

bool expand_lz4(Bytes packed, std::string& out, std::string& why) {
  const int written =
      LZ4_decompress_safe(packed.data(), out.data(), static_cast<int>(packed.size()), static_cast<int>(out.size()));
  if (written < 0 || static_cast<std::size_t>(written) != out.size()) {
    why = "damaged LZ4 data";
    return false;
  }
  return true;
}

}  // namespace

std::uint64_t fatbin_bytes(Bytes first) {
  const auto header = read_at<Header>(first, 0);
  if (!header || header->magic != kFatbinMagic) return 0;
  if (header->bytes > UINT64_MAX - header->header_bytes) return 0;
  return header->header_bytes + header->bytes;
}

Fatbin read_fatbin(Bytes bytes) {
  Fatbin result;
  const auto damaged = [&result] {
    result.error = "damaged fatbin";
    return std::move(result);
  };
  const std::uint64_t size = fatbin_bytes(bytes);
  const auto header = read_at<Header>(bytes, 0);
  if (size == 0 || size > bytes.size() || header->header_bytes < sizeof(Header)) return damaged();
  bytes = bytes.substr(0, size);
  for (std::uint64_t at = header->header_bytes; at < size;) {
    const auto entry = read_at<EntryHeader>(bytes, at);
    if (!entry || entry->header_bytes < sizeof(EntryHeader) || result.entries.size() >= kMostEntries) return damaged();
    const auto payload = part(bytes, at + entry->header_bytes, entry->bytes);
    if (!payload) return damaged();
    FatbinEntry found;
    found.kind = entry->kind == 1   ? FatbinEntry::Kind::ptx
                 : entry->kind == 2 ? FatbinEntry::Kind::elf
                                    : FatbinEntry::Kind::other;
    const std::uint64_t packing = entry->flags & (kLz4 | kZstd);
    found.packing = packing == 0       ? FatbinEntry::Packing::plain
                    : packing == kLz4  ? FatbinEntry::Packing::lz4
                    : packing == kZstd ? FatbinEntry::Packing::zstd
                                       : FatbinEntry::Packing::unknown;
    found.arch = entry->arch;
    found.variant = entry->flags & kVariant;
    if (found.packing == FatbinEntry::Packing::plain) {
      found.payload = *payload;
      found.expanded_bytes = payload->size();
    } else {
      if (entry->packed_bytes > payload->size()) return damaged();
      found.payload = payload->substr(0, entry->packed_bytes);
      found.expanded_bytes = entry->expanded_bytes;
    }
    result.entries.push_back(found);
    at += entry->header_bytes + entry->bytes;
  }
  return result;
}

bool expand(const FatbinEntry& entry, std::string& out, std::string& why) {
  if (entry.packing == FatbinEntry::Packing::unknown) {
    why = "compressed in an unknown way";
    return false;
  }
  const std::uint64_t limit = std::min(kMostExpandedBytes, (entry.payload.size() + 16) * kMostExpansion);
  if (entry.expanded_bytes > limit || entry.expanded_bytes == 0) {
    why = entry.expanded_bytes == 0 ? "an empty entry in its fatbin" : "too large";
    return false;
  }
  if (entry.packing == FatbinEntry::Packing::plain) {
    out.assign(entry.payload);
    return true;
  }
  out.resize(entry.expanded_bytes);
  return entry.packing == FatbinEntry::Packing::zstd ? expand_zstd(entry.payload, out, why)
                                                     : expand_lz4(entry.payload, out, why);
}

}  // namespace nimble::code
