#include "python/native/chained_words.h"

#include <algorithm>
#include <stdexcept>

namespace nimble::python {

ChainedWords::ChainedWords(const std::vector<Block>& blocks) : layout_(blocks), blocks_(blocks.size()) {
  if (blocks.empty() || blocks.size() > kMostBlocks) throw std::invalid_argument("too few or too many blocks");
  std::uint32_t end = 0;
  for (std::size_t number = 0; number < blocks.size(); ++number) {
    const Block& block = blocks[number];
    if (block.offsets.empty()) throw std::invalid_argument("a block has no words");
    if (number > 0) {
      if (block.parent >= number) throw std::invalid_argument("a block has no earlier parent");
      const std::vector<std::uint32_t>& known = blocks[block.parent].offsets;
      if (std::find(known.begin(), known.end(), block.at) == known.end())
        throw std::invalid_argument("the pointer to a block is not compared");
    }
    for (std::size_t first = 0; first < block.offsets.size(); first += kWords) {
      Step step{.block = number};
      for (std::size_t i = 0; i < kWords; ++i)
        step.offsets[i] = block.offsets[std::min(first + i, block.offsets.size() - 1)];
      steps_.push_back(step);
    }
    end = std::max(end, *std::max_element(block.offsets.begin(), block.offsets.end()));
  }
  nothing_.resize(end / sizeof(std::uint64_t) + 2);
  stride_ = blocks_ + steps_.size() * kWords;
}

void ChainedWords::add(const void* object) {
  std::array<const char*, kMostBlocks> bases{};
  for (std::size_t number = 0; number < blocks_; ++number) {
    const Block& block = layout_[number];
    const auto* base = number == 0 ? static_cast<const char*>(object)
                                   : reinterpret_cast<const char*>(word(bases[block.parent], block.at));
    bases[number] = base != nullptr ? base : reinterpret_cast<const char*>(nothing_.data());
    entries_.push_back(reinterpret_cast<std::uintptr_t>(bases[number]));
  }
  for (const Step& step : steps_)
    for (const std::uint32_t offset : step.offsets) entries_.push_back(word(bases[step.block], offset));
  ++count_;
}

}  // namespace nimble::python
