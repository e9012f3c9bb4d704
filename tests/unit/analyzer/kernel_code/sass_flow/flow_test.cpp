// What is proven of machine code that nvcc made of the kernels of which the PTX is tested: on every family of
// architectures the same, and what their PTX says of them (ptx_flow/flow_test.cpp).
#include "analyzer/kernel_code/sass_flow/flow.h"

#include <algorithm>
#include <map>
#include <random>

#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code::sass {
namespace {

constexpr char kFollows[] = "? it may follow an address that it loads from memory";

// Without the place of what is not understood, which is another on each architecture.
std::string spoken_without_place(const PtxProof& proof) {
  std::string text = test::spoken(proof);
  return text.substr(0, text.find(", at byte"));
}

using Spoken = std::map<std::string, std::string>;

void expect_numbers_among_params(const PtxProof& proof) {
  std::uint32_t end = 0;
  for (const PtxParam& param : proof.params) end = std::max(end, param.offset + param.size);
  for (const AddressGroup& group : proof.extents.groups)
    for (const std::uint32_t word : group.numbers) EXPECT_TRUE(word % 4 == 0 && word < end) << word << " of " << end;
}

Spoken prove_all(const std::string& file) {
  const std::string bytes = test::read_file(std::string(NIMBLE_TEST_CUBINS) + "/" + file);
  const Elf elf(bytes);
  EXPECT_EQ(elf.error(), nullptr);
  Spoken found;
  for (const ElfSymbol& symbol : elf.symbols())
    if (symbol.kernel) {
      const PtxProof proof = prove_kernel(elf, symbol.name);
      expect_numbers_among_params(proof);
      found[std::string(symbol.name)] = spoken_without_place(proof);
    }
  return found;
}

class MachineCode : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (std::string(NIMBLE_TEST_CUBINS).empty()) GTEST_SKIP() << "there is no nvcc";
  }
  std::string file(const std::string& name) const { return name + "_" + std::to_string(GetParam()) + ".cubin"; }
};

TEST_P(MachineCode, OrdinaryKernels) {
  const Spoken expected = {
      {"accumulate", "0:rw 8:r"},
      {"address_as_numbers", "0:w 8:r"},
      {"array_of_pointers", "0:w 8:r 16:r"},
      {"behind_flags", "0:r 8:r 16:rw 24:r"},
      {"calls", "0:w 8:r"},
      {"calls_for_pointer", "0:w 8:r"},
      {"calls_with_struct", "0:w 16:r"},
      {"choose", "0:w 8,16:r"},
      {"choose_target", "0,8:w 16:r"},
      {"compact", "0:w 8:rw 16:r"},
      {"difference", "0:w 8:r"},
      {"gather", "0:w 8:r 16:r 24:r"},
      {"global_pointer", kFollows},
      {"histogram", "0:rw 8:r"},
      {"indexed_array_of_pointers", "0,8,16,24:w 32:r"},
      {"linked_list", "0:w 8:r; it may follow an address that it loads from memory"},  // unless it is empty
      {"local_array", "0:w 8:r"},
      {"loop", "0:w 8:r"},
      {"ping_pong", "0:rw 0,8:w 8:w"},  // what it has written nvcc does not read again
      {"pointer_arithmetic", "0:w 8,16:r"},
      {"pointer_table", kFollows},
      {"pointer_table_written", kFollows},
      {"pointers_in_local_array", "0:w 8,16,24:r"},
      {"publishes", "0:w"},
      {"reads_global", "0:w a_global:r"},
      {"scale", "0:w 8:r"},
      {"scatter", "0:rw 8:r 16:r"},
      {"struct_by_value", "16:r 32:w 40:rw"},
      {"with_unused", "0:w 8:r"},
      {"writes_global", "0:r a_global:w"},
  };
  EXPECT_EQ(prove_all(file("kernels")), expected);
}

INSTANTIATE_TEST_SUITE_P(Architectures, MachineCode, testing::Values(75, 80, 90, 100, 120),
                         [](const auto& with) { return "sm_" + std::to_string(with.param); });

class MachineCodeOfGpuKernels : public MachineCode {};

TEST_P(MachineCodeOfGpuKernels, WhatOnlyAGpuHas) {
  const Spoken found = prove_all(file("gpu_kernels"));
  Spoken expected = {
      {"allocates", "? it calls malloc"},
      {"assembly", "0:w 8:r"},
      {"asserts", "0:w 8:r"},
      {"async_copies", "0:w 8:r"},
      {"calls_pointer", "? a call through a pointer"},
      {"converted", "0:w 8:r"},
      {"dynamic_shared", "0:w 8:r"},
      {"half_atomics", "0:rw 8:r"},
      {"halves", "0:w 8:r 16:r"},
      {"loaded_pointers_in_shared", kFollows},
      {"mathematics", "0:w 8:r 16:r"},
      {"other_blocks_memory", "0:w"},
      {"pointers_in_shared", "0:w 8,16:r"},
      {"prints", "? it calls vprintf"},
      {"reads_constant", "0:w a_constant:r"},
      {"reads_managed", "? it reaches the managed variable a_managed"},
      {"restricted", "0:w 8:r"},
      {"shared_atomics", "0:rw 8:r"},
      {"shared_or_global", "? an address that may be just a number"},
      {"shuffled_pointers", "0:w 8,16:r"},
      {"surface", "? it reaches a surface"},
      {"tensor_cores", "0:w 8:r 16:r"},
      {"texture", "? it reads a texture"},
      {"transpose", "0:w 8:r"},
      {"vectors", "0:w 8:r 16:r 24:r"},
      {"whole_parameter", "16:w 24:r"},
  };
  // The grid's barrier lies where the driver says, in words of the launch that are no parameters.
  const auto grid = found.find("syncs_grid");
  ASSERT_NE(grid, found.end());
  EXPECT_TRUE(grid->second.starts_with("? ")) << grid->second;
  expected.insert(*grid);
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Architectures, MachineCodeOfGpuKernels, testing::Values(90, 100),
                         [](const auto& with) { return "sm_" + std::to_string(with.param); });

// Small kernels, each for one thing that machine code is made of (machine_kernels.cu).
TEST_P(MachineCode, WhatMachineCodeIsMadeOf) {
  // Where shared memory lies among generic addresses later architectures tell in halves of one kind, and pointers that
  // may lead there or elsewhere have a half that may be just a number.
  const bool is_told_whole = GetParam() < 90;
  const Spoken expected = {
      {"allocates", "? it calls malloc"},
      {"asserts", "0:rw"},
      {"atomics", "0:rw 8:rw 16:rw 24:rw"},
      {"calls", "0:w 8:r"},
      {"complains", "0:w 8:r"},
      {"generic", is_told_whole ? "0:rw" : "0:rw; an address that may be just a number"},
      {"globals", kFollows},
      {"halves", "0:rw"},
      {"indexed", "0:w 8:r 16:r"},
      {"jump", "0:rw"},
      {"ping_pong", "0:rw 0,8:rw 8:rw"},
      {"pick", "0,8:w 16:r"},
      {"pointer_call", "? a call through a pointer"},
      {"pointers", kFollows},
      {"says", "? it calls vprintf"},
      {"shared", kFollows},
      {"shift64", "0:w"},
      {"shuffled", kFollows},
      {"table", "0,8,16,24,32,40,48,56,64,72,80,88:w"},
      {"table_local", "0,8,16,24,32,40,48,56,64,72,80,88:w"},
      {"wide", "0:w 8:r"},
  };
  EXPECT_EQ(prove_all(file("machine_kernels")), expected);
}

TEST_P(MachineCode, DamagedCodeIsNotUnderstoodAndEndsNothing) {
  const std::string whole = test::read_file(std::string(NIMBLE_TEST_CUBINS) + "/" + file("machine_kernels"));
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 1 + i % 8; ++k) bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    const Elf elf(bytes);
    if (elf.error()) continue;
    for (const ElfSymbol& symbol : elf.symbols()) {
      if (!symbol.kernel) continue;
      const PtxProof proof = prove_kernel(elf, symbol.name);
      EXPECT_NE(proof.understood, !proof.why.empty());
      for (const PtxAccess& access : proof.accesses) EXPECT_FALSE(access.at.empty());
    }
  }
}

}  // namespace
}  // namespace nimble::code::sass
