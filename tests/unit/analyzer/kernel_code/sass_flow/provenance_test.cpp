// What launches may exclude that kernels do, and which of their numbers decide it.
#include "analyzer/kernel_code/sass_flow/provenance.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "analyzer/kernel_code/sass_flow/flow.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code::sass {
namespace {

std::string without_place(const std::string& why) { return why.substr(0, why.find(", at byte")); }

// "8:4 12:1 shape": the parameters' bytes, and whether the grid and blocks are among what decides.
std::string deciding(const AddressExtents& extents, const AddressDoubt& doubt) {
  std::set<std::string> pieces;
  std::set<std::uint32_t> seen;
  std::vector<std::uint32_t> open{doubt.happens};
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    if (!seen.insert(at).second) continue;
    const Expression& each = extents.expressions[at];
    if (operands_of(each.op) > 0) open.push_back(each.a);
    if (operands_of(each.op) > 1) open.push_back(each.b);
    if (each.op == ExpressionOp::param) pieces.insert(std::to_string(each.value) + ":" + std::to_string(each.a));
    if (each.op == ExpressionOp::launch) pieces.insert("shape");
  }
  std::string text;
  for (const std::string& each : pieces) text += " " + each;
  return text;
}

class Choosing : public testing::TestWithParam<int> {};

TEST_P(Choosing, WhatDecidesIsWhatTheSourceCompares) {
  if (std::string(NIMBLE_TEST_CUBINS).empty()) GTEST_SKIP() << "there is no nvcc";
  const std::string bytes =
      test::read_file(std::string(NIMBLE_TEST_CUBINS) + "/choosing_kernels_" + std::to_string(GetParam()) + ".cubin");
  const Elf elf(bytes);
  ASSERT_EQ(elf.error(), nullptr);
  std::map<std::string, std::string> found;
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (!symbol.kernel) continue;
    const PtxProof proof = prove_kernel(elf, symbol.name);
    std::string& text = found[std::string(symbol.name)] = without_place(test::spoken(proof));
    for (const AddressDoubt& doubt : proof.extents.doubts) text += " by" + deciding(proof.extents, doubt);
  }
  const std::string follows = "it may follow an address that it loads from memory", memory = "; " + follows + " by ";
  const std::map<std::string, std::string> expected = {
      {"by_field", "0:r 8:w 16:r" + memory + "24:2 26:1"},
      {"by_flag", "0:w 8:r 16:r" + memory + "24:4"},
      {"by_kept", "0:rw 8:r 16:r" + memory + "24:4 28:4"},
      {"by_kept_again", "0:rw 8:r 16:r" + memory + "24:4"},
      {"by_kept_byte", "? " + follows},
      {"by_kept_count", "? " + follows},
      {"by_kept_pointer", "0:rw 8:r 16:r" + memory + "16:8"},
      {"by_mode", "0:w 8:r 24:r" + memory + "32:4"},
      {"by_null", "0:w 8:r 24:r" + memory + "24:8"},
      {"by_number", "0:w 8:r; an address that may be just a number by 24:4"},
      {"by_one_of_kept", "? " + follows},
      {"by_one_of_two", "0:w 8:r 16:r" + memory + "24:4"},
      {"by_shape", "0:w 8:r 16:r" + memory + "shape"},
      {"by_size", "? " + follows},
      {"by_thread", "? " + follows},
      {"by_what_a_pointer_leads_to", "? " + follows},
      {"by_what_is_loaded", "? " + follows},
      {"by_what_was_not_kept", "? " + follows},
      {"in_a_function", "0:w 8:r" + memory + "16:4"},
      {"one_of_two_ways", "? " + follows},
  };
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Choosing, testing::Values(75, 80, 90, 100, 120),
                         [](const auto& with) { return "sm_" + std::to_string(with.param); });

}  // namespace
}  // namespace nimble::code::sass
