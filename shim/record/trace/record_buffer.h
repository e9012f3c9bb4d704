// A reusable buffer: bytes are appended in pieces and read as a whole. Appended bytes never move, and memory is kept
// for reuse: appending costs next to nothing while a lock is held. Not synchronised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace nimble::shim {

class RecordBuffer {
 public:
  // Room for `bytes`, a multiple of 8, contiguous and uninitialised. Valid until clear().
  std::uint8_t* append(std::size_t bytes) {
    while (at_ < chunks_.size() && chunks_[at_].size - chunks_[at_].used < bytes) ++at_;
    if (at_ == chunks_.size()) {
      const std::size_t size = std::max(bytes, kChunkBytes);
      chunks_.push_back({std::make_unique_for_overwrite<std::uint8_t[]>(size), size, 0});
    }
    Chunk& chunk = chunks_[at_];
    std::uint8_t* const place = chunk.bytes.get() + chunk.used;
    chunk.used += bytes;
    size_ += bytes;
    return place;
  }

  // Whether append() needs no memory. It looks no further than at the next chunk.
  bool has_room(std::size_t bytes) const {
    for (std::size_t at = at_; at < chunks_.size() && at < at_ + 2; ++at)
      if (chunks_[at].size - chunks_[at].used >= bytes) return true;
    return false;
  }

  std::size_t size() const { return size_; }

  // Calls `read(begin, bytes)` for what was appended, in order, several whole pieces at a time.
  template <class Read>
  void read(Read read) const {
    for (const Chunk& chunk : chunks_) {
      if (chunk.used != 0) read(chunk.bytes.get(), chunk.used);
    }
  }

  // Empties it. Keeps memory for twice the size that wakes its reader (shim/record/trace/record_queue.cpp), and no
  // more.
  void clear() {
    if (chunks_.size() > kMostKept) chunks_.resize(kMostKept);
    for (Chunk& chunk : chunks_) chunk.used = 0;
    at_ = size_ = 0;
  }

  void swap(RecordBuffer& other) noexcept {
    chunks_.swap(other.chunks_);
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
  }

 private:
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10, kMostKept = 2;

  struct Chunk {
    std::unique_ptr<std::uint8_t[]> bytes;
    std::size_t size = 0, used = 0;
  };

  std::vector<Chunk> chunks_;
  std::size_t at_ = 0;  // the chunk being filled; those before it are full, those after it empty
  std::size_t size_ = 0;
};

}  // namespace nimble::shim
