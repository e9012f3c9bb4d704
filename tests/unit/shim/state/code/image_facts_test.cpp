#include "shim/state/code/image_facts.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

namespace nimble::shim {
namespace {

constexpr char kPlainPtx[] =
    "//\n.version 9.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry k(.param .u64 a)\n{\n .reg .b64 %rd<2>;\n ld.global.u64 %rd1, [a];\n ret;\n}\n";

std::string with(const char* line) { return std::string(".version 9.0\n.target sm_90\n") + line + "\n" + kPlainPtx; }

TEST(ImageFacts, PtxOfKernelsAloneIsSelfContained) { EXPECT_TRUE(image_facts(kPlainPtx).self_contained); }

// `user` takes the address of what is declared.
std::string used(const std::string& declaration, const std::string& instruction) {
  return with(
      (declaration + "\n.visible .entry user()\n{\n .reg .b64 %rd<2>;\n " + instruction + "\n ret;\n}").c_str());
}

TEST(ImageFacts, PtxWithVariablesOrCallsOutIsNot) {
  const std::pair<const char*, const char*> cases[] = {
      {".global .align 4 .u32 v;", "mov.u64 %rd1, v;"},
      {".visible .global .align 4 .u32 v;", "mov.u64 %rd1, v;"},
      {".const .align 4 .b8 v[4];", "ld.const.u64 %rd1, [v];"},
      {"\t.extern .global .b32 v;", "st.global.u64 [v], 1;"},
      {".weak .const .u32 v;", "mov.u64 %rd1, v;"},
      {".extern .func vprintf;", "call.uni vprintf;"},
  };
  for (const auto& [declaration, instruction] : cases) {
    const ImageFacts facts = image_facts(used(declaration, instruction).c_str());
    EXPECT_FALSE(facts.self_contained) << declaration;
    EXPECT_FALSE(facts.why.empty());
    EXPECT_TRUE(image_facts(with(declaration).c_str()).self_contained) << "it is not used: " << declaration;
  }
}

// A fatbin of one entry: header, entry header, payload.
std::vector<char> fatbin(std::uint16_t kind, std::uint64_t flags, const std::string& payload) {
  std::vector<char> bytes(16 + 64 + payload.size());
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(0, std::uint32_t{0xBA55ED50});
  put(4, std::uint16_t{1});
  put(6, std::uint16_t{16});
  put(8, std::uint64_t{64 + payload.size()});
  put(16, kind);
  put(20, std::uint32_t{64});
  put(24, std::uint64_t{payload.size()});
  put(16 + 40, flags);
  std::memcpy(bytes.data() + 16 + 64, payload.data(), payload.size());
  return bytes;
}

TEST(ImageFacts, FatbinsAreReadEntryByEntry) {
  EXPECT_TRUE(image_facts(fatbin(1, 0, kPlainPtx).data()).self_contained);
  EXPECT_FALSE(image_facts(fatbin(1, 0, used(".global .u32 g;", "mov.u64 %rd1, g;")).data()).self_contained);
  EXPECT_FALSE(image_facts(fatbin(7, 0, kPlainPtx).data()).self_contained);
}

TEST(ImageFacts, WhatIsCompressedButCannotBeExpandedIsNotGuessedAt) {
  for (const std::uint64_t flag : {0x2000, 0x8000})
    EXPECT_FALSE(image_facts(fatbin(1, flag, kPlainPtx).data()).self_contained);
}

TEST(ImageFacts, AnImageIsReadWhenAKernelIsAskedFor) {
  std::string text(kPlainPtx);
  const LoadedImage loaded = load_image(text.c_str());
  ASSERT_NE(loaded.code, nullptr);
  EXPECT_TRUE(loaded.by_kernel);
  text.assign(text.size(), 'x');  // the program may free it at once
  const unsigned archs[] = {90};
  EXPECT_TRUE(loaded.code->kernel("k", archs).self_contained);
}

// Part of the program, too large to be copied at once: it is read where it stands.
struct LargeImage {
  char text[1 << 17] =
      ".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 a)\n{\n .reg .b64 %rd<2>;\n"
      "ld.param.u64 %rd1, [a];\n st.global.u32 [%rd1], 1;\n ret;\n}\n";
  constexpr LargeImage() {
    for (std::size_t i = 0; i + 1 < sizeof text; ++i)
      if (text[i] == 0) text[i] = ' ';
  }
};
constinit const LargeImage g_large;

TEST(ImageFacts, WhatIsPartOfTheProgramIsReadInPlace) {
  const LoadedImage loaded = load_image(g_large.text);
  ASSERT_NE(loaded.code, nullptr);
  const unsigned archs[] = {90};
  const code::KernelFacts facts = loaded.code->kernel("k", archs);
  ASSERT_TRUE(facts.accesses) << facts.why;
  EXPECT_EQ(*facts.accesses, (std::vector<code::PtxAccess>{{{0}, false, true}}));
}

TEST(ImageFacts, WhatIsNotWhatItWasIsNotRead) {
  const std::size_t bytes = sizeof g_large.text;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memcpy(memory, g_large.text, bytes);
  const auto source = read_in_place({static_cast<const char*>(memory), bytes - 1});
  EXPECT_TRUE(source());
  static_cast<char*>(memory)[10] ^= 1;
  EXPECT_FALSE(source());
  ::munmap(memory, bytes);
  EXPECT_FALSE(source());
}

TEST(ImageFacts, AFatbinMayFollowItsWrapper) {
  const std::vector<char> inner = fatbin(1, 0, kPlainPtx);
  struct {
    std::uint32_t magic = 0x466243B1, version = 1;
    const char* data;
  } wrapper;
  wrapper.data = inner.data();
  EXPECT_TRUE(image_facts(&wrapper).self_contained);
}

TEST(ImageFacts, WhatIsNotUnderstoodIsNotSelfContained) {
  EXPECT_FALSE(image_facts(nullptr).self_contained);
  EXPECT_FALSE(image_facts("what is this, sixteen bytes at least").self_contained);
  EXPECT_FALSE(image_facts_of_file("/nowhere").self_contained);
}

// Real machine code, where the build machine has a compiler for it: see CMakeLists.txt.
TEST(ImageFacts, ReadsWhatNvccWrites) {
  const std::string folder = NIMBLE_CUBIN_FOLDER;
  if (folder.empty()) GTEST_SKIP() << "no nvcc on this machine: machine code is not covered here";
  EXPECT_TRUE(image_facts_of_file((folder + "/plain.cubin").c_str()).self_contained)
      << image_facts_of_file((folder + "/plain.cubin").c_str()).why;
  EXPECT_TRUE(image_facts_of_file((folder + "/plain.fatbin").c_str()).self_contained);
  EXPECT_TRUE(image_facts_of_file((folder + "/compressed.fatbin").c_str()).self_contained);
  EXPECT_NE(image_facts_of_file((folder + "/global.cubin").c_str()).why.find(".nv.global"), std::string::npos);
  EXPECT_NE(image_facts_of_file((folder + "/constant.cubin").c_str()).why.find(".nv.constant3"), std::string::npos);
  EXPECT_NE(image_facts_of_file((folder + "/printf.cubin").c_str()).why.find("vprintf"), std::string::npos);
}

}  // namespace
}  // namespace nimble::shim
