// Which bytes of a random program's memory hold something, as the ops of its step go by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/oracle/program/program.h"
#include "tests/oracle/program/ranges.h"

namespace nimble::oracle {

class Contents {
 public:
  explicit Contents(const std::vector<Buffer>& buffers) {
    for (const Buffer& buffer : buffers) add(buffer);
  }
  void add(const Buffer& buffer) {
    const bool there = !of_step(buffer.memory) && !buffer.later;
    written_.emplace_back(buffer.bytes, there);
    live_.push_back(there);
    carried_.push_back(buffer.memory == Memory::carried);
  }
  bool live(std::uint32_t buffer) const { return live_[buffer]; }
  // Memory that was stored to, all of it defined; and memory that no longer exists.
  void bring(std::uint32_t buffer) {
    live_[buffer] = true;
    std::fill(written_[buffer].begin(), written_[buffer].end(), true);
  }
  void leave(std::uint32_t buffer) { live_[buffer] = false; }
  bool written(std::uint32_t buffer, std::uint32_t begin, std::uint32_t end) const {
    const auto& bytes = written_[buffer];
    return std::all_of(bytes.begin() + begin, bytes.begin() + end, [](bool byte) { return byte; });
  }
  // False, and nothing is changed, where the op needs what is not there.
  bool apply(const Op& op) {
    if (op.kind == OpKind::alloc) {
      live_[op.buffer] = true;
      std::fill(written_[op.buffer].begin(), written_[op.buffer].end(), false);
      return true;
    }
    if (op.kind == OpKind::free) {
      if (!live_[op.buffer] && !carried_[op.buffer]) return false;
      live_[op.buffer] = false;
      return true;
    }
    const bool always = !varies(op);  // what it writes in some steps only must have been there before
    for (const Range& range : op.ranges)
      if (!live_[range.buffer] || (!(range.writes && always) && !written(range.buffer, range.begin, range.end)))
        return false;
    for (const Range& range : op.ranges)
      if (range.writes)
        std::fill(written_[range.buffer].begin() + range.begin, written_[range.buffer].begin() + range.end, true);
    return true;
  }

 private:
  std::vector<std::vector<bool>> written_;
  std::vector<bool> live_, carried_;
};

}  // namespace nimble::oracle
