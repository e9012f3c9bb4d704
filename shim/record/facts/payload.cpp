#include "shim/record/facts/payload.h"

#include <algorithm>
#include <cstring>

namespace nimble::shim {

bool find_words(const void* bytes, std::uint64_t size, std::uint64_t destination, const AddressBounds& range,
                std::vector<TraceWord>& found) {
  if (size > kMostPayload) return false;
  const std::uint64_t low = range.begin(), high = range.end();
  if (low >= high) return true;
  const auto* const from = static_cast<const std::uint8_t*>(bytes);
  const auto word_at = [&](std::uint64_t at) {
    std::uint64_t word;
    std::memcpy(&word, from + at, sizeof word);
    return word;
  };
  // Scans a block at a time without branches: nearly all hold none.
  constexpr std::uint64_t kBlock = 512;
  for (std::uint64_t at = (8 - destination % 8) % 8; at + 8 <= size; at += kBlock) {
    const std::uint64_t end = std::min(at + kBlock, at + (size - at) / 8 * 8);
    bool any = false;
    for (std::uint64_t i = at; i < end; i += 8) any |= word_at(i) - low < high - low;
    for (std::uint64_t i = at; any && i < end; i += 8) {
      const std::uint64_t word = word_at(i);
      if (word - low >= high - low) continue;
      if (found.size() >= kMostWords) return false;
      found.push_back({i, word});
    }
  }
  return true;
}

}  // namespace nimble::shim
