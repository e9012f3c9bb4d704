// The dominators of each block, within its function. Computed once, then constant.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/kernel_code/sass_code/control_flow.h"

namespace nimble::code::sass {

class Dominators {
 public:
  explicit Dominators(const ControlFlow& flow);

  // The last of them before the block; kNoBlock for a function's first block, and for one that is not reached.
  std::uint32_t immediate(std::uint32_t block) const { return immediate_[block]; }
  // Whether every way to `block` leads through `over`; a block does so to itself.
  bool dominates(std::uint32_t over, std::uint32_t block) const;

 private:
  std::vector<std::uint32_t> immediate_;
  std::vector<std::uint32_t> depth_;  // how many there are before it
};

}  // namespace nimble::code::sass
