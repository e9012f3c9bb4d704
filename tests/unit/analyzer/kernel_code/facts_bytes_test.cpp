// Facts come back from bytes as they were, and from damaged bytes as facts or not at all.
#include "analyzer/kernel_code/facts_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/unit/analyzer/kernel_code/facts_support.h"

namespace nimble::code {
namespace {

using test::many_facts;

TEST(FactsBytes, ComeBackAsTheyWere) {
  const std::optional<KernelFacts> none = facts_of(bytes_of(KernelFacts()));
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, KernelFacts());
  const std::optional<KernelFacts> many = facts_of(bytes_of(many_facts()));
  ASSERT_TRUE(many);
  EXPECT_EQ(*many, many_facts());
}

TEST(FactsBytes, APartOrMoreIsNothing) {
  const std::string bytes = bytes_of(many_facts());
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(facts_of(Bytes(bytes).substr(0, size))) << size;
  EXPECT_FALSE(facts_of(bytes + '\0'));
}

TEST(FactsBytes, DamageLeavesNothingThatLeadsOutside) {
  const std::string bytes = bytes_of(many_facts());
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    std::string damaged = bytes;
    for (unsigned times = 1 + random() % 3; times > 0; --times)
      damaged[random() % damaged.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    const auto facts = facts_of(damaged);
    if (!facts) continue;
    EXPECT_EQ(bytes_of(*facts), damaged);
    for (const Expression& each : facts->extents.expressions) {
      ASSERT_LE(each.op, ExpressionOp::where);
      const std::size_t there = facts->extents.expressions.size();
      ASSERT_TRUE(operands_of(each.op) < 1 || each.a < there);
      ASSERT_TRUE(operands_of(each.op) < 2 || each.b < there);
    }
    for (const AddressGroup& group : facts->extents.groups)
      for (const AddressUse& use : group.uses) ASSERT_LT(use.address, facts->extents.expressions.size());
  }
}

TEST(FactsBytes, ACountThatIsTooLargeTakesNoMemory) {
  // The counts are the only places with eight bytes in which the upper ones are zero.
  const std::string bytes = bytes_of(many_facts());
  for (std::size_t at = 0; at + 8 <= bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged.replace(at, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\x0f", 8));
    const auto facts = facts_of(damaged);
    EXPECT_TRUE(!facts || bytes_of(*facts) == damaged);
  }
}

}  // namespace
}  // namespace nimble::code
