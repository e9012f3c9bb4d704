// Fatbins: ones put together here, with every kind of damage, and those that nvcc writes.
#include "analyzer/kernel_code/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include "tests/unit/analyzer/kernel_code/fatbin_support.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using test::EntryToWrite;
using test::write_fatbin;
using Packing = FatbinEntry::Packing;

std::string text_of(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "line " + std::to_string(text.size() % 97) + "\n";
  text.resize(bytes);
  return text;
}

TEST(Fatbin, EntriesComeBackAsTheyWere) {
  const std::string a = text_of(10000), b = text_of(333), c(5000, '\0');
  const std::string bytes =
      write_fatbin({{1, 90, a, Packing::zstd, 0x100000}, {2, 80, b, Packing::plain, 0}, {2, 120, c, Packing::lz4, 0}});
  EXPECT_EQ(fatbin_bytes(bytes), bytes.size());
  const std::string more = bytes + "what follows is not its own";
  const Fatbin fatbin = read_fatbin(more);
  ASSERT_EQ(fatbin.error, "");
  ASSERT_EQ(fatbin.entries.size(), 3u);
  EXPECT_EQ(fatbin.entries[0].kind, FatbinEntry::Kind::ptx);
  EXPECT_EQ(fatbin.entries[0].variant, 0x100000u);
  EXPECT_EQ(fatbin.entries[1].kind, FatbinEntry::Kind::elf);
  EXPECT_EQ(fatbin.entries[2].arch, 120u);
  std::string out, why;
  const std::string* expected[] = {&a, &b, &c};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(expand(fatbin.entries[i], out, why)) << why;
    EXPECT_EQ(out, *expected[i]);
  }
}

TEST(Fatbin, DamageIsTold) {
  const std::string good =
      write_fatbin({{1, 90, text_of(1000), Packing::zstd, 0}, {2, 90, text_of(1000), Packing::lz4, 0}});
  const auto with = [&](std::size_t at, auto value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  EXPECT_EQ(fatbin_bytes(""), 0u);
  EXPECT_EQ(fatbin_bytes("not a fatbin at all"), 0u);
  EXPECT_EQ(fatbin_bytes(with(8, UINT64_MAX)), 0u);
  EXPECT_NE(read_fatbin("").error, "");
  EXPECT_NE(read_fatbin(good.substr(0, good.size() - 1)).error, "");
  EXPECT_NE(read_fatbin(with(6, std::uint16_t{0})).error, "");       // its own header
  EXPECT_NE(read_fatbin(with(16 + 4, std::uint32_t{8})).error, "");  // an entry's header
  EXPECT_NE(read_fatbin(with(16 + 4, UINT32_MAX)).error, "");
  EXPECT_NE(read_fatbin(with(16 + 8, UINT64_MAX - 100)).error, "");  // an entry's payload
  EXPECT_NE(read_fatbin(with(16 + 16, UINT32_MAX)).error, "");       // what of it is packed
  std::string out, why;
  for (const std::uint64_t claimed :
       {std::uint64_t{0}, std::uint64_t{999}, std::uint64_t{1001}, UINT64_MAX, kMostExpandedBytes}) {
    const Fatbin fatbin = read_fatbin(with(16 + 56, claimed));
    ASSERT_EQ(fatbin.error, "");
    EXPECT_FALSE(expand(fatbin.entries[0], out, why)) << claimed;
    EXPECT_LT(out.capacity(), std::size_t{2} << 20) << "allocated by a number from the file";
  }
  std::string bytes = with(16 + 40, std::uint64_t{0xa011});  // both ways of packing at once
  EXPECT_FALSE(expand(read_fatbin(bytes).entries[0], out, why));
  bytes = good;
  bytes[16 + 64 + 20] ^= 1;
  EXPECT_FALSE(expand(read_fatbin(bytes).entries[0], out, why));
}

TEST(Fatbin, AsNvccWritesThem) {
  const std::string folder = NIMBLE_TEST_CUBINS;
  if (folder.empty()) GTEST_SKIP() << "no nvcc on this machine: its fatbins are not covered here";
  std::string plain_ptx;
  for (const char* mode : {"none", "speed", "balance", "size"}) {
    const std::string bytes = test::read_file(folder + "/" + mode + ".fatbin");
    const Fatbin fatbin = read_fatbin(bytes);
    ASSERT_EQ(fatbin.error, "") << mode;
    ASSERT_EQ(fatbin.entries.size(), 3u) << mode;
    int elves = 0;
    bool packed = false;
    for (const FatbinEntry& entry : fatbin.entries) {
      std::string out, why;
      ASSERT_TRUE(expand(entry, out, why)) << mode << ": " << why;
      packed |= entry.packing != Packing::plain;
      if (entry.kind == FatbinEntry::Kind::elf) {
        EXPECT_EQ(out.substr(1, 3), "ELF") << mode;
        ++elves;
      } else {
        const std::string ptx = out.substr(
            out.find(".version"), out.find_last_not_of(std::string_view("\0\n", 2)) + 1 - out.find(".version"));
        if (plain_ptx.empty()) plain_ptx = ptx;
        EXPECT_EQ(ptx, plain_ptx) << mode;
        EXPECT_EQ(entry.arch, 90u);
      }
    }
    EXPECT_EQ(elves, 2);
    EXPECT_EQ(packed, std::string_view(mode) != "none") << mode;
  }
}

}  // namespace
}  // namespace nimble::code
