#include "analyzer/report/beliefs.h"

#include "analyzer/report/report.h"
#include "tests/unit/analyzer/watched_case.h"

namespace nimble::analyzer::test {
namespace {

// The step's second kernel is known by its signature, whatever is known of the first.
TEST(Beliefs, AreNamedWithHowManyOpsTheyConcern) {
  EXPECT_EQ(beliefs_text(Case().analyze(Evidence::observed)),
            "rests on beliefs: of 2 ops 1 are known by declared evidence, 1 by observed evidence");
  EXPECT_EQ(beliefs_text(declared().analyze(Evidence::declared)),
            "rests on beliefs: of 2 ops 2 are known by declared evidence");
}

TEST(Beliefs, WithoutAnyThereIsNothingToSay) {
  EXPECT_EQ(beliefs_text(Case().analyze(Evidence::proven)), "") << "all is ordered";
  EXPECT_EQ(beliefs_text(declared().analyze(Evidence::exact)), "");
  Case one;  // one op is known, and ordered with the other
  EXPECT_EQ(beliefs_text(one.analyze(Evidence::declared)), "");
}

TEST(Beliefs, TheReportSaysHowToDoWithout) {
  EXPECT_NE(text_report(declared().analyze(Evidence::declared))
                .find("beliefs         the order rests on beliefs: of 2 ops 2 are known by declared evidence; --trust "
                      "proven does without\n"),
            std::string::npos);
  EXPECT_EQ(text_report(declared().analyze(Evidence::proven)).find("beliefs"), std::string::npos);
}

}  // namespace
}  // namespace nimble::analyzer::test
