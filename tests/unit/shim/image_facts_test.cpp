#include "shim/image_facts.h"

#include <gtest/gtest.h>

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

TEST(ImageFacts, PtxWithVariablesOrCallsOutIsNot) {
  for (const char* line :
       {".global .align 4 .u32 g;", ".visible .global .align 4 .u32 g;", ".const .align 4 .b8 c[4];",
        "\t.extern .global .b32 e;", "\tcall.uni (retval0), vprintf, (p0, p1);", ".weak .const .u32 w;"}) {
    const ImageFacts facts = image_facts(with(line).c_str());
    EXPECT_FALSE(facts.self_contained) << line;
    EXPECT_FALSE(facts.why.empty());
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
  EXPECT_FALSE(image_facts(fatbin(1, 0, with(".global .u32 g;")).data()).self_contained);
  EXPECT_FALSE(image_facts(fatbin(7, 0, kPlainPtx).data()).self_contained);
}

TEST(ImageFacts, CompressedFatbinsAreNotGuessedAt) {
  for (const std::uint64_t flag : {0x2000, 0x8000}) {
    const ImageFacts facts = image_facts(fatbin(1, flag, kPlainPtx).data());
    EXPECT_FALSE(facts.self_contained);
    EXPECT_NE(facts.why.find("compressed"), std::string::npos);
  }
}

TEST(ImageFacts, AFatbinMayStandBehindItsWrapper) {
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
  EXPECT_NE(image_facts_of_file((folder + "/global.cubin").c_str()).why.find(".nv.global"), std::string::npos);
  EXPECT_NE(image_facts_of_file((folder + "/constant.cubin").c_str()).why.find(".nv.constant3"), std::string::npos);
  EXPECT_NE(image_facts_of_file((folder + "/printf.cubin").c_str()).why.find("vprintf"), std::string::npos);
}

}  // namespace
}  // namespace nimble::shim
