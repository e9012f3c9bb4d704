#include "analyzer/rules/kept_rules.h"

#include <gtest/gtest.h>

#include <fstream>

#include "analyzer/base/errors.h"
#include "analyzer/rules/shipped_rules.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

constexpr const char* kOne = R"({"nimble_rules": 1, "rules": [{"kernel": "mine.*", "params": ["out"]}]})";

TEST(KeptRules, AreReadOnce) {
  const test::TempFile file(kOne);
  KeptRules rules({file.path()});
  const std::shared_ptr<const Rules> first = rules.get();
  std::ofstream(file.path()) << "no rules";
  EXPECT_EQ(rules.get(), first);
  ASSERT_NE(first->find("mine", "mine", {{0, 8}}), nullptr);
}

TEST(KeptRules, OfAUserComeBeforeThoseOfTheTool) {
  Rules shipped;
  add_shipped_rules(shipped);
  const test::TempFile file(R"({"nimble_rules": 1, "rules": [{"kernel": ".*", "params": ["value"]}]})");
  KeptRules rules({file.path()});
  EXPECT_EQ(rules.get()->size(), shipped.size() + 1);
  const Rule* const found = rules.get()->find("anything", "anything", {{0, 8}});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->text, ".*");
}

TEST(KeptRules, ThatCannotBeReadAreReadAgain) {
  const test::TempFile file("no rules");
  KeptRules rules({file.path()});
  EXPECT_THROW(rules.get(), InputError);
  std::ofstream(file.path()) << kOne;
  EXPECT_NE(rules.get()->find("mine", "mine", {{0, 8}}), nullptr);
}

}  // namespace
}  // namespace nimble::analyzer
