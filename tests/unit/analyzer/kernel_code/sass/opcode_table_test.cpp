#include "analyzer/kernel_code/sass/opcode_table.h"

#include <gtest/gtest.h>

#include <map>

namespace nimble::code::sass {
namespace {

TEST(OpcodeTable, EveryLineCanBeRead) {
  EXPECT_GT(all_rows().size(), 400u);
  for (const Row& row : all_rows()) EXPECT_NE(row.archs, 0) << row.name << " " << std::hex << row.opcode;
}

TEST(OpcodeTable, OneRowForAnOpcodeOnAnArchitecture) {
  std::map<std::pair<unsigned, unsigned>, std::string> seen;
  for (const Row& row : all_rows())
    for (unsigned arch = 0; arch < std::size(kArchs); ++arch) {
      if ((row.archs >> arch & 1) == 0) continue;
      EXPECT_TRUE(seen.emplace(std::pair{row.opcode, arch}, row.name).second)
          << std::hex << row.opcode << " " << row.name << " on sm_" << std::dec << kArchs[arch];
    }
}

TEST(OpcodeTable, TheArchitectureDecidesWhatAnOpcodeIs) {
  const Row* const before = find_row(0x235, 90);
  const Row* const after = find_row(0x235, 120);
  ASSERT_TRUE(before);
  ASSERT_TRUE(after);
  EXPECT_STREQ(before->name, "HFMA2");
  EXPECT_STREQ(after->name, "IADD");
}

TEST(OpcodeTable, CountsGoByTheBitsThatTheyName) {
  const Row* const load = find_row(0x1981, 90);
  ASSERT_TRUE(load);
  std::map<unsigned, int> widths;
  for (unsigned size = 0; size < 8; ++size)
    widths[size] = load->writes[0].count.in(Word{0, std::uint64_t{size} << (73 - 64)}, 90);
  EXPECT_EQ(widths, (std::map<unsigned, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 2}, {6, 4}, {7, 4}}));
}

TEST(OpcodeTable, ACountThatWasNotSeenIsNotKnown) {
  const Row* const store = find_row(0x1986, 90);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->reads[1].count.in(Word{0, std::uint64_t{7} << (73 - 64)}, 90), Count::kNotKnown);
}

}  // namespace
}  // namespace nimble::code::sass
