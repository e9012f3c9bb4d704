#include "shim/record/observers/bundle/content_store.h"

#include <xxhash.h>

#include <algorithm>

namespace nimble::shim {

std::uint32_t ContentStore::put(std::span<const std::uint8_t> piece) {
  if (std::all_of(piece.begin(), piece.end(), [](std::uint8_t byte) { return byte == 0; })) return kNone;
  const XXH128_hash_t digest = XXH3_128bits(piece.data(), piece.size());
  const auto [place, fresh] =
      known_.try_emplace({digest.high64, digest.low64}, static_cast<std::uint32_t>(kept_.size()));
  if (!fresh) return place->second;
  if (piece.size() > limit_bytes_ - bytes_) {
    known_.erase(place);
    throw ContentLimit("more than the " + std::to_string(limit_bytes_ >> 20) +
                       " MiB of NIMBLE_BUNDLE_LIMIT; no other step is tried");
  }
  bytes_ += piece.size();
  kept_.push_back({std::string(reinterpret_cast<const char*>(piece.data()), piece.size()), kNone});
  return place->second;
}

void ContentStore::Writer::add(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (pending_.empty() && bytes.size() >= kBundlePiece) {
      content_.push_back(store_.put(bytes.first(kBundlePiece)));
      bytes = bytes.subspan(kBundlePiece);
      continue;
    }
    const std::size_t room = std::min<std::size_t>(kBundlePiece - pending_.size(), bytes.size());
    pending_.insert(pending_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(room));
    bytes = bytes.subspan(room);
    if (pending_.size() == kBundlePiece) finish();
  }
}

void ContentStore::Writer::finish() {
  if (!pending_.empty()) content_.push_back(store_.put(pending_));
  pending_.clear();
}

BundleContent ContentStore::keep(std::span<const std::uint8_t> bytes) {
  BundleContent content;
  Writer writer(*this, content);
  writer.add(bytes);
  writer.finish();
  return content;
}

bool ContentStore::write(std::FILE* file, BundleContent& content, std::vector<BundlePiece>& pieces) {
  for (std::uint32_t& piece : content) {
    if (piece == kNone) continue;
    Kept& kept = kept_[piece];
    if (kept.written == kNone) {
      if (std::fwrite(kept.bytes.data(), 1, kept.bytes.size(), file) != kept.bytes.size()) return false;
      kept.written = static_cast<std::uint32_t>(pieces.size());
      pieces.push_back(
          {written_, static_cast<std::uint32_t>(kept.bytes.size()), XXH3_64bits(kept.bytes.data(), kept.bytes.size())});
      written_ += kept.bytes.size();
    }
    piece = kept.written;
  }
  return true;
}

}  // namespace nimble::shim
