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

// R115 has conditions in its bits.
constexpr Word kIsNotP1{0x000000477500720c, 0x002fe40003f25270},  // ISETP.NE P1, R117, R71
    kIsNotP0{0x000000477500720c, 0x002fe40003f05270}, kClear{0x0000000073737812, 0x000fe400078ec0ff},  // R115 &=
    kSetIfP1{0x0000000073731812, 0x000fe200078efcff},                                                  // @P1 R115 |=
    kTestP0{0x0000000073ff7812, 0x000fda000780c0ff},          // P0 = (R115 &) != 0
    kAddIfP0{0x0000000049000210, 0x000fc80007ffe0ff},         // @P0 IADD3 R0, R73, R0, RZ
    kFromPredicates{0x0000000fff757803, 0x004fc40000000000},  // P2R R117, PR, RZ, 0xf
    kToPredicates{0x0000000f75007804, 0x000fe20000000000},
    kToPredicatesFromNextByte{0x0000000f75007804, 0x000fe40000001000};
constexpr Word kIsNotP4{0x000000477500720c, 0x002fe40003f85270},
    kZeroOrOne{0x00000001ff4a7807, 0x000fe40002000000},  // SEL R74, RZ, 0x1, P4
    kIsSetP0{0x000000ff4a00720c, 0x000fda0003f05270},    // ISETP.NE P0, R74, RZ
    kWiden{0x000099104a4a7816, 0x000fe400000000ff};      // PRMT R74, R74, 0x9910, RZ
// Local memory.
constexpr Word kStack{0x00000a00ff017b82, 0x000e620000000800},  // LDC R1, c[0x0][0x28]
    kThreadR143{0x00000000008f7919, 0x000ee20000002100}, kThreadR144{0x0000000000907919, 0x000ee20000002100},
    kStoreR143{0x0000348f01007387, 0x000fe20000100800},  // STL [R1+0x34], R143
    kStoreR144IfP1{0x0000349001001387, 0x000fe20000100800}, kLoadR134{0x0000340001867983, 0x000ee20000100800},
    kAddR134{0x0000000086007210, 0x000fc80007ffe0ff};  // IADD3 R0, R134, R0, RZ

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
  const Values values(text.kernel, flow);
  EXPECT_EQ(values.read(2)[0], values.read(3)[0]);
  EXPECT_EQ(values.read(6)[0], values.read(7)[0]);
  EXPECT_NE(values.read(2)[0], values.read(6)[0]);
}

TEST(Values, WhatTheLoaderPutsThereIsNotWhatStandsThere) {
  const std::vector<Word> words{kMovR7, kMovR8, kAddR7R8, kExit};
  Text plain(words);
  const ControlFlow plain_flow = control_flow(plain.kernel);
  const Values same(plain.kernel, plain_flow);
  EXPECT_EQ(same.read(2)[0], same.read(2)[1]);

  Text loaded(words);
  loaded.kernel.in_text[4] = {SymbolAt::Kind::variable, "a"};
  loaded.kernel.in_text[20] = {SymbolAt::Kind::variable, "b"};
  const ControlFlow loaded_flow = control_flow(loaded.kernel);
  const Values different(loaded.kernel, loaded_flow);
  EXPECT_NE(different.read(2)[0], different.read(2)[1]);
}

TEST(Values, APredicateThatIsSetAsABitIsKnownWhereTheBitIsTested) {
  const auto guard_of = [](std::vector<Word> words) {
    words.insert(words.end(), {kAddIfP0, kExit});
    const Text text(words);
    const ControlFlow flow = control_flow(text.kernel);
    EXPECT_EQ(flow.error, "");
    const Values values(text.kernel, flow);
    return values.guard(static_cast<std::uint32_t>(words.size() - 2)).predicate == values.written(0)[0];
  };
  const Word clear = with_immediate(kClear, 0xfffffff7), set = with_immediate(kSetIfP1, 8),
             clear_another = with_immediate(kClear, 0xffffffef), set_another = with_immediate(kSetIfP1, 16);
  EXPECT_TRUE(guard_of({kIsNotP1, clear, set, clear_another, with_immediate(kTestP0, 8)}));
  EXPECT_TRUE(guard_of({kIsNotP1, clear, clear_another, set, set_another, with_immediate(kTestP0, 24)}));
  EXPECT_FALSE(guard_of({kIsNotP1, set, with_immediate(kTestP0, 8)}));
  EXPECT_FALSE(guard_of({kIsNotP1, clear, set, with_immediate(kTestP0, 16)}));
  EXPECT_FALSE(guard_of({kIsNotP1, clear, set, with_immediate(kTestP0, 24)}));
  EXPECT_FALSE(guard_of({kIsNotP1, clear, set, with_immediate(kClear, 0xfffffff0), with_immediate(kTestP0, 8)}));
  EXPECT_TRUE(guard_of({kIsNotP0, kFromPredicates, kIsNotP0, kToPredicates}));
  EXPECT_FALSE(guard_of({kIsNotP0, kFromPredicates, kThreadR143, kToPredicatesFromNextByte}));
}

TEST(Values, APredicateMayBeTheOppositeOfAnother) {
  const Text text({kIsNotP4, kZeroOrOne, kWiden, kIsSetP0, kAddIfP0, kExit});
  const ControlFlow flow = control_flow(text.kernel);
  EXPECT_EQ(flow.error, "");
  const Values values(text.kernel, flow);
  EXPECT_EQ(values.guard(4).predicate, values.written(0)[0]);
  EXPECT_FALSE(values.guard(4).is_true);
}

TEST(Values, WhatIsLoadedBackIsWhatWasStored) {
  const auto is_it = [](const std::vector<Word>& words) {
    const Text text(words);
    const ControlFlow flow = control_flow(text.kernel);
    EXPECT_EQ(flow.error, "");
    const Values values(text.kernel, flow);
    return values.read(static_cast<std::uint32_t>(words.size() - 2))[0] == values.written(1)[0];
  };
  EXPECT_TRUE(is_it({kStack, kThreadR143, kStoreR143, kLoadR134, kAddR134, kExit}));
  EXPECT_FALSE(is_it({kStack, kThreadR143, kThreadR144, kStoreR143, kStoreR144IfP1, kLoadR134, kAddR134, kExit}));
  EXPECT_TRUE(is_it({kStack, kThreadR143, kThreadR144, kStoreR144IfP1, kStoreR143, kLoadR134, kAddR134, kExit}));
}

}  // namespace
}  // namespace nimble::code::sass
