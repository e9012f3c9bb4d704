#include "python/native/chained_words.h"

#include <algorithm>
#include <stdexcept>

namespace nimble::python {

namespace {

bool is_pointer(const std::vector<Block>& blocks, std::size_t parent, std::uint32_t at) {
  return std::any_of(blocks.begin() + 1, blocks.end(),
                     [=](const Block& block) { return block.parent == parent && block.at == at; });
}

}  // namespace

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
      for (std::size_t i = 0; i < kWords; ++i)
        step.without_pointers[i] = is_pointer(blocks, number, step.offsets[i]) ? 0 : ~std::uint64_t{0};
      steps_.push_back(step);
    }
    end = std::max(end, *std::max_element(block.offsets.begin(), block.offsets.end()));
  }
  nothing_.resize(end / sizeof(std::uint64_t) + 2);
  stride_ = blocks_ + steps_.size() * kWords;
}

void ChainedWords::add(const void* object) {
  std::array<const char*, kMostBlocks> bases{static_cast<const char*>(object)};
  for (std::size_t number = 0; number < blocks_; ++number) {
    if (number > 0) bases[number] = base_of(number, bases);
    entries_.push_back(reinterpret_cast<std::uintptr_t>(bases[number]));
  }
  for (const Step& step : steps_)
    for (const std::uint32_t offset : step.offsets) entries_.push_back(word(bases[step.block], offset));
  ++count_;
}

}  // namespace nimble::python
