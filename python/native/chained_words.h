// Words in the memory of objects, and of what they point to, compared with what they were.
//
// What an object leads to is read by offsets that the caller has found and tested: this file knows no object's layout.
// A word is 8 bytes. Nothing that a changed pointer leads to is read, so only the objects themselves must be alive at a
// comparison.
//
// Not synchronised: the owner sees to it that nothing writes to the words meanwhile, which Python's lock does for
// Python's objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nimble::python {

// A piece of memory: block 0 is the object, any other what the word `at` of an earlier block points to, if that is not
// null.
struct Block {
  std::uint32_t parent = 0, at = 0;    // offsets in bytes, as all are
  std::vector<std::uint32_t> offsets;  // of its words; with those where later blocks are
};

class ChainedWords {
 public:
  static constexpr std::size_t kMostBlocks = 8;

  // Throws std::invalid_argument for blocks of which one has no earlier parent, or no words, or whose parent does not
  // compare the pointer to it; and for more than kMostBlocks.
  explicit ChainedWords(const std::vector<Block>& blocks);
  ChainedWords(const ChainedWords&) = delete;
  ChainedWords& operator=(const ChainedWords&) = delete;

  // Reads the words of another object, which is alive.
  void add(const void* object);

  std::size_t size() const { return count_; }

  // Whether object `number` of those that were added is this one, which is alive, and leads to the same words as then.
  bool is_same(std::size_t number, const void* object) const {
    const std::uint64_t* entry = entries_.data() + number * stride_;
    if (entry[0] != reinterpret_cast<std::uintptr_t>(object)) return false;
    const std::uint64_t* words = entry + blocks_;
    for (const Step& step : steps_) {
      const char* base = reinterpret_cast<const char*>(entry[step.block]);
      std::uint64_t different = 0;
      for (std::size_t i = 0; i < kWords; ++i) different |= word(base, step.offsets[i]) ^ words[i];
      if (different != 0) return false;
      words += kWords;
    }
    return true;
  }

  // Whether an object that is alive leads to the same words as object `number` did, by pointers of its own. What the
  // first block compares has to ensure that these are pointers.
  bool is_alike(std::size_t number, const void* object) const {
    const std::uint64_t* words = entries_.data() + number * stride_ + blocks_;
    std::array<const char*, kMostBlocks> bases{static_cast<const char*>(object)};
    for (const Step& step : steps_) {
      const char*& base = bases[step.block];
      if (base == nullptr) base = base_of(step.block, bases);
      std::uint64_t different = 0;
      for (std::size_t i = 0; i < kWords; ++i)
        different |= (word(base, step.offsets[i]) ^ words[i]) & step.without_pointers[i];
      if (different != 0) return false;
      words += kWords;
    }
    return true;
  }

  // Has the processor fetch what is_same(number, ...) will read. Any number.
  void prefetch(std::size_t number) const {
    if (number >= count_) return;
    const std::uint64_t* entry = entries_.data() + number * stride_;
    for (const Step& step : steps_) {
      const char* base = reinterpret_cast<const char*>(entry[step.block]);
      __builtin_prefetch(base + step.offsets.front());
      __builtin_prefetch(base + step.offsets.back());
    }
  }

 private:
  static constexpr std::size_t kWords = 4;  // of a step; the last offset of a block is repeated to fill its last step
  struct Step {
    std::size_t block = 0;
    std::array<std::uint32_t, kWords> offsets{};
    std::array<std::uint64_t, kWords> without_pointers{};  // all bits, but none of a pointer to another block
  };

  // Where a block other than the first begins, or what stands in for it, by what its parent leads to.
  const char* base_of(std::size_t block, const std::array<const char*, kMostBlocks>& bases) const {
    const auto* base = reinterpret_cast<const char*>(word(bases[layout_[block].parent], layout_[block].at));
    return base != nullptr ? base : reinterpret_cast<const char*>(nothing_.data());
  }

  static std::uint64_t word(const char* base, std::uint32_t offset) {
    std::uint64_t value;
    __builtin_memcpy(&value, base + offset, sizeof value);
    return value;
  }

  std::vector<Block> layout_;
  std::vector<Step> steps_;  // in the order of blocks, so that a pointer is compared before what it points to is read
  std::vector<std::uint64_t> nothing_;  // stands in for what a null pointer points to
  std::size_t blocks_ = 0, stride_ = 0, count_ = 0;
  std::vector<std::uint64_t> entries_;  // of each object: the addresses of its blocks, then the words of each step
};

}  // namespace nimble::python
