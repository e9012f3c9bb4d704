#include "analyzer/rules.h"

#include <gtest/gtest.h>

#include "analyzer/errors.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

std::string error_of(const std::string& text) {
  test::TempFile file(text);
  Rules rules;
  try {
    rules.read(file.path());
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), file.path());
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return std::string(error.what()).substr(file.path().size());
  }
  return "no error";
}

TEST(Rules, TheFirstThatMatchesWithAsManyParametersSpeaks) {
  test::TempFile file(R"rules({"nimble_rules": 1, "rules": [
      {"kernel": "gemm.*", "params": ["in", "out"]},
      {"kernel": "gemm.*", "params": ["in", "in", "inout"], "comment": "C += A * B"},
      {"kernel": "add\\(.*\\)", "params": ["value"]}]})rules");
  Rules rules;
  rules.read(file.path());
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules.find("gemm_f32", "gemm_f32", 3)->params[2], RuleParam::inout);
  EXPECT_EQ(rules.find("gemm_f32", "gemm_f32", 2)->params[1], RuleParam::out);
  EXPECT_EQ(rules.find("gemm_f32", "gemm_f32", 4), nullptr);
  EXPECT_EQ(rules.find("my_gemm", "my_gemm", 2), nullptr) << "must match the whole name";
  EXPECT_NE(rules.find("_Z3addPf", "add(float*)", 1), nullptr);
  EXPECT_EQ(rules.find("gemm" + std::string(100'000, 'x'), "", 2), nullptr);
}

TEST(Rules, SayWhatIsWrong) {
  EXPECT_EQ(error_of(""), ": is no JSON object");
  EXPECT_EQ(error_of("[]"), ": is no JSON object");
  EXPECT_EQ(error_of("{"), ": is no JSON object");
  EXPECT_EQ(error_of("{}"), ": nimble_rules: is missing");
  EXPECT_EQ(error_of(R"({"nimble_rules": 2, "rules": []})"),
            ": nimble_rules: is 2; this nimble-analyze reads version 1");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1})"), ": rules: is missing");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": {}})"), ": rules: must be a list");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [5]})"), ": rules[0]: must be an object");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [{"params": []}]})"), ": rules[0].kernel: is missing");
  EXPECT_NE(error_of(R"({"nimble_rules": 1, "rules": [{"kernel": "(", "params": []}]})")
                .find(": rules[0].kernel: is no regular expression"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [{"kernel": "a", "params": ["in", "both"]}]})"),
            ": rules[0].params: must hold only in, out, inout, value, table, table-in and table-out");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [{"kernel": "a", "params": [1]}]})"),
            ": rules[0].params: must be text");
  Rules rules;
  EXPECT_THROW(rules.read("/nowhere/rules.json"), InputError);
}

}  // namespace
}  // namespace nimble::analyzer
