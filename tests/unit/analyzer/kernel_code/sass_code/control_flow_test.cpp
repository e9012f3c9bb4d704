#include "analyzer/kernel_code/sass_code/control_flow.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace nimble::code::sass {
namespace {

// Of sm_90.
constexpr Word kNop{0x0000000000007918, 0x000fc00000000000}, kExit{0x000000000000794d, 0x000fc00003800000},
    kBra{0x0000000000007947, 0x000fc00003800000}, kWarpsync{0x0000000004007348, 0x000fc00003800000},
    kTrap{0x000000040000795c, 0x000fc00000300000}, kReturn{0xfffffffc06fc7950, 0x000fc00003c3ffff};

Word with(Word word, unsigned bit) {
  (bit < 64 ? word.low : word.high) ^= std::uint64_t{1} << (bit % 64);
  return word;
}

// Leads over so many instructions, fewer than 64.
Word over(Word word, unsigned instructions) {
  word.low |= std::uint64_t{instructions} * 4 << 16;
  return word;
}

struct Text {
  explicit Text(const std::vector<Word>& words) : bytes(words.size() * kInstructionBytes, 0) {
    for (std::size_t i = 0; i < words.size(); ++i)
      std::memcpy(&bytes[i * kInstructionBytes], &words[i], sizeof words[i]);
    kernel.arch = 90;
    kernel.text = bytes;
  }
  ControlFlow flow() const { return control_flow(kernel); }

  std::string bytes;
  Kernel kernel;
};

// Whether control may come to that instruction.
bool is_reached(const ControlFlow& flow, std::uint32_t instruction) {
  for (const Block& block : flow.blocks)
    if (instruction >= block.begin && instruction < block.end) return true;
  return false;
}

TEST(ControlFlow, WhatABranchLeadsOverIsNotReached) {
  const Text text({over(kBra, 1), kNop, kExit});
  const ControlFlow flow = text.flow();
  EXPECT_EQ(flow.error, "");
  EXPECT_FALSE(is_reached(flow, 1));
  EXPECT_TRUE(is_reached(flow, 2));
}

TEST(ControlFlow, ABranchUnderAConditionGoesOnToo) {
  // The guard P0, and in its place the further condition P6, or one that never holds.
  for (const unsigned bit : {12u, 87u, 90u}) {
    const Text text({with(over(kBra, 1), bit), kNop, kExit});
    EXPECT_TRUE(is_reached(text.flow(), 1)) << bit;
  }
}

TEST(ControlFlow, ThreadsThatWaitTogetherMayGoOnElsewhere) {
  constexpr unsigned kCollective = 86;
  const Text plain({over(kWarpsync, 2), kExit, kNop, kExit});
  EXPECT_FALSE(is_reached(plain.flow(), 3));
  const Text collective({with(over(kWarpsync, 2), kCollective), kExit, kNop, kExit});
  EXPECT_TRUE(is_reached(collective.flow(), 1));
  EXPECT_TRUE(is_reached(collective.flow(), 3));
}

TEST(ControlFlow, AnExitThatMayNotBeOneGoesOnToo) {
  EXPECT_FALSE(is_reached(Text({kExit, kExit}).flow(), 1));
  for (const unsigned bit : {84u, 85u, 87u, 90u})
    EXPECT_TRUE(is_reached(Text({with(kExit, bit), kExit}).flow(), 1)) << bit;
}

TEST(ControlFlow, OnlyATrapEnds) {
  EXPECT_EQ(Text({kTrap, kExit}).flow().error, "");
  EXPECT_FALSE(is_reached(Text({kTrap, kExit}).flow(), 1));
  for (const unsigned bit : {84u, 85u, 86u})
    EXPECT_TRUE(Text({with(kTrap, bit), kExit}).flow().error.starts_with("an instruction that is not known")) << bit;
}

TEST(ControlFlow, AReturnToAnAbsoluteAddressIsNotUnderstood) {
  constexpr unsigned kAbsolute = 85;
  EXPECT_EQ(Text({kReturn, kExit}).flow().error, "the kernel returns");
  EXPECT_EQ(Text({with(kReturn, kAbsolute), kExit}).flow().error, "a return to an address that is not known");
}

}  // namespace
}  // namespace nimble::code::sass
