// Cubins as nvcc makes them, and damaged ones.
#include "analyzer/kernel_code/cubin.h"

#include <random>

#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

class CubinTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(NIMBLE_TEST_CUBINS).empty())
      GTEST_SKIP() << "no nvcc on this machine: machine code is not covered here";
  }

  static std::string file(const std::string& name) { return test::read_file(NIMBLE_TEST_CUBINS "/" + name + ".cubin"); }

  static std::string why(const Cubin& cubin, std::string_view kernel) {
    const CubinKernel* found = cubin.find(kernel);
    return found == nullptr ? "not there" : found->self_contained ? "" : found->why;
  }
};

TEST_F(CubinTest, CallsOutOfTheImageAreTheirCallersOwn) {
  const Cubin cubin = read_cubin(file("all"));
  ASSERT_EQ(cubin.error, "");
  EXPECT_EQ(cubin.kernels.size(), 6u);
  // The pointer leads nowhere: no function of this image has its address taken.
  for (const char* kernel : {"plain", "calls", "asserts", "calls_pointer"}) EXPECT_EQ(why(cubin, kernel), "") << kernel;
  for (const char* kernel : {"prints", "prints_deep_inside"})
    EXPECT_EQ(why(cubin, kernel), "it calls vprintf") << kernel;
  EXPECT_EQ(cubin.find("twice"), nullptr);
}

TEST_F(CubinTest, VariablesConcernAllKernels) {
  // Any kernel may take their addresses from a constant bank; nothing outside of the instructions tells which does.
  const Cubin variable = read_cubin(file("variable")), constant = read_cubin(file("constant"));
  for (const char* kernel : {"plain", "calls", "asserts", "writes_variable"})
    EXPECT_NE(why(variable, kernel).find(".nv.global"), std::string::npos) << kernel;
  for (const char* kernel : {"plain", "calls", "asserts", "reads_constant"}) {
    EXPECT_NE(why(constant, kernel).find(".nv.constant3"), std::string::npos) << kernel;
    EXPECT_TRUE(constant.find(kernel)->constants && !constant.find(kernel)->self_contained) << kernel;
  }
  for (const char* kernel : {"plain", "writes_variable"}) EXPECT_FALSE(variable.find(kernel)->constants) << kernel;
}

TEST_F(CubinTest, TagsOfHeaderLibrariesConcernNobody) {
  const Cubin tags = read_cubin(file("tags")), flag = read_cubin(file("flag"));
  ASSERT_NE(file("tags").find("placeholders"), std::string::npos) << "the headers bring no tags any more";
  for (const char* kernel : {"plain", "_Z9transformI5TwiceEvPfPKfT_"}) {
    EXPECT_EQ(why(tags, kernel), "") << kernel;
    // A variable of one byte that a kernel writes, and of which the name begins as theirs do.
    EXPECT_NE(why(flag, kernel).find("4flagE (.nv.global)"), std::string::npos) << kernel << ": " << why(flag, kernel);
  }
}

TEST_F(CubinTest, ConstantsOfGroupsConcernNobody) {
  const Cubin groups = read_cubin(file("groups")), other = read_cubin(file("other_group"));
  for (const char* name : {"cluster_group_id", "_MemoryShuffleCutoff"})
    ASSERT_NE(file("groups").find(name), std::string::npos) << name;
  for (const char* kernel : {"plain", "tells_group"}) {
    EXPECT_EQ(why(groups, kernel), "") << kernel;
    EXPECT_NE(why(other, kernel).find("15latest_group_idE"), std::string::npos) << kernel << ": " << why(other, kernel);
  }
}

TEST_F(CubinTest, ConstantsOfTilesConcernNobody) {
  EXPECT_EQ(why(read_cubin(file("tiles")), "shifts"), "");
  for (const auto& [name, variable] :
       {std::pair{"tiles_member", "5countE ("}, std::pair{"tiles_size", "10shiftCountE ("}})
    EXPECT_NE(why(read_cubin(file(name)), "counts").find(variable), std::string::npos) << name;
}

TEST_F(CubinTest, WhatHasNoNameIsAConstantOnlyWhereItIsFilled) {
  EXPECT_NE(why(read_cubin(file("unnamed")), "counts").find("__unnamed_1 (.nv.global)"), std::string::npos);
}

TEST_F(CubinTest, VariablesOfFilesThatAreYetToBeLinkedAreVariables) {
  const Cubin code = read_cubin(file("elsewhere"));
  EXPECT_EQ(why(code, "counts"), "it reaches the variable of_another of another file");
  EXPECT_EQ(why(code, "shares"), "it reaches the variable of_several of another file");
  EXPECT_EQ(why(code, "plain"), "");
}

TEST_F(CubinTest, TablesOfGeneratorsConcernNobody) {
  const Cubin tables = read_cubin(file("tables")), other = read_cubin(file("other_table"));
  ASSERT_NE(file("tables").find("mrg32k3aM2Seq"), std::string::npos);
  for (const char* kernel : {"plain", "draws"}) {
    EXPECT_EQ(why(tables, kernel), "") << kernel;
    EXPECT_NE(why(other, kernel).find("mrg32k3aM1 ("), std::string::npos) << kernel << ": " << why(other, kernel);
  }
}

TEST_F(CubinTest, LiteralsOfLlvmConcernNobody) {
  EXPECT_EQ(why(read_cubin(file("llvm")), "reads_literals"), "");
  EXPECT_EQ(why(read_cubin(file("llvm_variable")), "counts"), "it reaches the global variable _$_strings (.nv.global)");
}

TEST_F(CubinTest, TellsTheVirtualArchitecture) {
  EXPECT_EQ(read_cubin(file("all")).virtual_arch, 90u);
  EXPECT_EQ(read_cubin(file("older")).virtual_arch, 80u);
}

TEST_F(CubinTest, ItsSizeFollowsFromItsHeader) {
  const std::string bytes = file("all");
  EXPECT_EQ(elf_bytes(bytes), bytes.size());
  EXPECT_EQ(elf_bytes("\x7f"
                      "ELF"),
            0u);
}

TEST_F(CubinTest, DamageIsNoTrouble) {
  const std::string good = file("variable");
  const std::size_t program_headers = 1024;  // which are never read
  for (std::size_t size = 0; size < good.size() - program_headers; size += 97)
    EXPECT_NE(read_cubin(good.substr(0, size)).error, "") << size;
  std::mt19937 random(2020);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (int times = 0; times < 4; ++times) {
      const std::size_t at = random() % 3 == 0 ? random() % 64 : random() % (bytes.size() - 8);
      const std::uint64_t value = random() % 2 == 0 ? UINT64_MAX >> (random() % 64) : random();
      std::memcpy(bytes.data() + at, &value, 1 + random() % 8);
    }
    read_cubin(bytes);
  }
}

}  // namespace
}  // namespace nimble::code
