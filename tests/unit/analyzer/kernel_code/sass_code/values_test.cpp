// Which values are the same, and which only look so.
#include "analyzer/kernel_code/sass_code/values.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace nimble::code::sass {
namespace {

// Of sm_90.
constexpr Word kExit{0x000000000000794d, 0x000fc00003800000}, kCall{0x0000000000007944, 0x000fea0003c00000},
    kReturnR4{0xfffffffc04007950, 0x000fea0003c3ffff},  // without the low bits of where it goes
    kMovR4R7{0x0000000700047202, 0x000fe20000000f00}, kMovR5Zero{0x00000000ff057424, 0x000fc800078e00ff},
    kMovR7{0x0000000000077802, 0x000fe20000000f00}, kMovR8{0x0000000000087802, 0x000fe20000000f00},
    kIsZeroR6{0x000000ff0600720c, 0x000fda0003f05270},  // ISETP.NE P0, R6, RZ
    kMulR6{0x0000000304067824, 0x004fe200078e0205},     // IMAD R6, R4, 0x3, R5
    kAddR7R8{0x0000000807067210, 0x000fe20007ffe0ff};   // IADD3 R6, R7, R8, RZ

Word over(Word word, unsigned instructions) {
  word.low |= std::uint64_t{instructions} * 4 << 16;
  return word;
}

Word with_immediate(Word word, std::uint32_t value) {
  word.low |= std::uint64_t{value} << 32;
  return word;
}

Word return_at(unsigned instruction) {
  Word word = kReturnR4;
  word.low |= std::uint64_t{(0u - 4 * (instruction + 1)) & 0xff} << 16;
  return word;
}

struct Text {
  explicit Text(const std::vector<Word>& words) : bytes(words.size() * kInstructionBytes, 0) {
    for (std::size_t i = 0; i < words.size(); ++i)
      std::memcpy(&bytes[i * kInstructionBytes], &words[i], sizeof words[i]);
    kernel.arch = 90;
    kernel.text = bytes;
  }

  std::string bytes;
  Kernel kernel;
};

TEST(Values, WhatTwoCallsOfAFunctionWriteIsNotTheSame) {
  const Text text({with_immediate(kMovR7, 0x20), over(kCall, 7), kIsZeroR6, kIsZeroR6,  // the first call
                   with_immediate(kMovR7, 0x60), over(kCall, 3), kIsZeroR6, kIsZeroR6, kExit, kMulR6, kMovR4R7,
                   kMovR5Zero, return_at(12)});
  const ControlFlow flow = control_flow(text.kernel);
  ASSERT_EQ(flow.error, "");
  ASSERT_EQ(flow.functions.size(), 2u);
  const Values values(kernel, flow);
  EXPECT_EQ(values.read(2)[0], values.read(3)[0]);
  EXPECT_EQ(values.read(6)[0], values.read(7)[0]);
  EXPECT_NE(values.read(2)[0], values.read(6)[0]);
}

TEST(Values, WhatTheLoaderPutsThereIsNotWhatStandsThere) {
  const std::vector<Word> words{kMovR7, kMovR8, kAddR7R8, kExit};
  Text plain(words);
  const ControlFlow plain_flow = control_flow(plain.kernel);
  const Values same(plain_flow);
  EXPECT_EQ(same.read(2)[0], same.read(2)[1]);

  Text loaded(words);
  loaded.kernel.in_text[4] = {SymbolAt::Kind::variable, "a"};
  loaded.kernel.in_text[20] = {SymbolAt::Kind::variable, "b"};
  const ControlFlow loaded_flow = control_flow(loaded.kernel);
  const Values different(loaded_flow);
  EXPECT_NE(different.read(2)[0], different.read(2)[1]);
}

}  // namespace
}  // namespace nimble::code::sass
