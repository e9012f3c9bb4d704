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
    kTrap{0x000000040000795c, 0x000fc00000300000}, kReturn{0xfffffffc06fc7950, 0x000fc00003c3ffff},
    kCall{0x0000000000007944, 0x000fc00003c00000}, kBssy{0x0000000000007945, 0x000fc00003800000},
    kBsync{0x0000000000007941, 0x000fc00003800000}, kBarrierBack{0x0000000200007356, 0x000fc00000000000};

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
  // A return that stands there: its offset is that of the text's beginning.
  static Word return_at(unsigned instruction) {
    const std::int64_t words = -4 * (static_cast<std::int64_t>(instruction) + 1);
    Word word = kReturn;
    word.low = (word.low & 0xff00ffff) | std::uint64_t{static_cast<std::uint8_t>(words)} << 16 |
               static_cast<std::uint64_t>(words >> 8) << 34;
    return word;
  }

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

TEST(ControlFlow, AKernelDoesNotReturn) {
  constexpr unsigned kAbsolute = 85;
  EXPECT_EQ(Text({kReturn, kExit}).flow().error, "the kernel returns");
  EXPECT_EQ(Text({with(kReturn, kAbsolute), kExit}).flow().error, "the kernel returns");
  // To an offset that counts from elsewhere than from the text's beginning.
  EXPECT_EQ(Text({kExit, kReturn}).flow().error, "");
  EXPECT_EQ(Text({kNop, kReturn, kExit}).flow().error, "a return to an address that is not known");
}

// What compilers write for a jump that is too far for a branch.
TEST(ControlFlow, ACallOfCodeThatDoesNotReturnIsAJump) {
  constexpr unsigned kGuard = 12;
  const ControlFlow flow = Text({with(over(kCall, 1), kGuard), kExit, kNop, kExit}).flow();
  EXPECT_EQ(flow.error, "");
  EXPECT_EQ(flow.functions.size(), 1u);
  for (std::uint32_t at = 0; at < 4; ++at) EXPECT_TRUE(is_reached(flow, at)) << at;
  // Without a condition nothing goes on after it.
  const ControlFlow always = Text({over(kCall, 1), kExit, kNop, kExit}).flow();
  EXPECT_EQ(always.functions.size(), 1u);
  EXPECT_FALSE(is_reached(always, 1));
}

TEST(ControlFlow, ACallOfCodeThatMayReturnIsACall) {
  constexpr unsigned kGuard = 12;
  // The return is at the place that kReturn's own offset is of.
  const Word back = Text::return_at(3);
  for (const bool is_always : {true, false}) {
    const Word call = is_always ? over(kCall, 1) : with(over(kCall, 1), kGuard);
    const ControlFlow flow = Text({call, kExit, kNop, back}).flow();
    EXPECT_EQ(flow.error, "");
    ASSERT_EQ(flow.functions.size(), 2u);
    EXPECT_EQ(flow.functions[1].returns.size(), 1u);
    EXPECT_TRUE(is_reached(flow, 1));
    // Under a condition there are two ways to what comes after the call.
    EXPECT_EQ(flow.blocks[1].from.size(), is_always ? 1u : 2u);
  }
}

TEST(ControlFlow, AFunctionThatOnlyItsOwnCalleeReturnsFromDoesNot) {
  // 0 jumps to 2, which calls 4, which returns to 3.
  const ControlFlow flow = Text({over(kCall, 1), kExit, over(kCall, 1), kExit, Text::return_at(4)}).flow();
  EXPECT_EQ(flow.error, "");
  EXPECT_EQ(flow.functions.size(), 2u);
  EXPECT_FALSE(is_reached(flow, 1));
}

Word bssy(unsigned barrier, unsigned instructions) {
  Word word = kBssy;
  word.low |= std::uint64_t{barrier} << 16 | std::uint64_t{instructions} * 4 << 34;
  return word;
}
Word bsync(unsigned barrier) {
  Word word = kBsync;
  word.low |= std::uint64_t{barrier} << 16;
  return word;
}

TEST(ControlFlow, ThreadsThatMeetGoOnWhereTheBarrierSays) {
  constexpr char kElsewhere[] = "a wait that goes on elsewhere";
  EXPECT_EQ(Text({bssy(0, 1), bsync(0), kExit}).flow().error, "");
  EXPECT_EQ(Text({bssy(0, 2), bsync(0), kExit, kExit}).flow().error, kElsewhere);
  EXPECT_EQ(Text({bssy(0, 1), bsync(1), kExit}).flow().error, kElsewhere);
}

TEST(ControlFlow, ABarrierThatWasPutBackMayBeAnyThatIsNamed) {
  Word back = kBarrierBack;
  back.low |= std::uint64_t{1} << 24;
  EXPECT_EQ(Text({bssy(0, 2), back, bsync(1), kExit}).flow().error, "");
  // Another barrier than the one that was put back; and a place that is not named.
  EXPECT_EQ(Text({bssy(0, 2), back, bsync(2), kExit}).flow().error, "a wait that goes on elsewhere");
  EXPECT_EQ(Text({bssy(0, 1), back, bsync(1), kExit}).flow().error, "a wait that goes on elsewhere");
}

}  // namespace
}  // namespace nimble::code::sass
