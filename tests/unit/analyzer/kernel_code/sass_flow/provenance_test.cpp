// What launches may exclude that kernels do, and which of their numbers decide it.
#include "analyzer/kernel_code/sass_flow/provenance.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

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
    if (!symbol.kernel || symbol.name == "by_guard") continue;  // that is the next test's
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

// Whether an expression may have a value in a launch, as far as comparisons of single parameters tell.
class Launched {
 public:
  Launched(const Expressions& all, std::map<std::int64_t, std::int64_t> params)
      : all_(all), params_(std::move(params)) {}

  bool may_be(std::uint32_t at) {
    if (!open_.insert(at).second) return false;  // a loop alone makes nothing
    const Expression& each = all_[at];
    bool may = true;
    if (each.op == ExpressionOp::when) may = may_be(each.a) && may_be(each.b);
    if (each.op == ExpressionOp::either) may = may_be(each.a) || may_be(each.b);
    if (each.op == ExpressionOp::where) may = holds(each);
    open_.erase(at);
    return may;
  }

 private:
  std::optional<std::int64_t> value(std::uint32_t at) const {
    const Expression& each = all_[at];
    if (each.op == ExpressionOp::constant) return each.value;
    if (each.op != ExpressionOp::param) return std::nullopt;
    const auto found = params_.find(each.value);
    return found == params_.end() ? std::nullopt : std::optional(found->second);
  }
  bool holds(const Expression& each) const {
    const auto left = value(each.a), right = value(each.b);
    if (!left || !right) return true;
    const auto relation = static_cast<ExpressionRelation>(each.value % kSignedRelation);
    if (relation == ExpressionRelation::equal) return *left == *right;
    return relation != ExpressionRelation::not_equal || *left != *right;
  }

  const Expressions& all_;
  const std::map<std::int64_t, std::int64_t> params_;
  std::set<std::uint32_t> open_;
};

// A number that is no address is chosen only where the instruction that would use it does not run.
TEST_P(Choosing, AnAddressThatIsNotUsedRaisesNoDoubt) {
  if (std::string(NIMBLE_TEST_CUBINS).empty()) GTEST_SKIP() << "there is no nvcc";
  const std::string bytes =
      test::read_file(std::string(NIMBLE_TEST_CUBINS) + "/choosing_kernels_" + std::to_string(GetParam()) + ".cubin");
  const PtxProof proof = prove_kernel(Elf(bytes), "by_guard");
  ASSERT_EQ(test::spoken(proof).front(), '0') << test::spoken(proof);
  for (const std::int64_t batched : {0, 1})
    for (const std::int64_t plain : {0, 1})
      for (const AddressDoubt& doubt : proof.extents.doubts)
        EXPECT_FALSE(Launched(proof.extents.expressions, {{16, batched}, {20, plain}}).may_be(doubt.happens))
            << doubt.why << " " << batched << plain;
}

// Where the number is used it does.
TEST_P(Choosing, AnAddressThatIsUsedRaisesADoubtInItsLaunches) {
  if (std::string(NIMBLE_TEST_CUBINS).empty()) GTEST_SKIP() << "there is no nvcc";
  const std::string bytes =
      test::read_file(std::string(NIMBLE_TEST_CUBINS) + "/choosing_kernels_" + std::to_string(GetParam()) + ".cubin");
  const PtxProof proof = prove_kernel(Elf(bytes), "by_number");
  ASSERT_EQ(proof.extents.doubts.size(), 1u);
  for (const std::int64_t is_tagged : {0, 1})
    EXPECT_EQ(Launched(proof.extents.expressions, {{24, is_tagged}}).may_be(proof.extents.doubts[0].happens),
              is_tagged == 1);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Choosing, testing::Values(75, 80, 90, 100, 120),
                         [](const auto& with) { return "sm_" + std::to_string(with.param); });

}  // namespace
}  // namespace nimble::code::sass
