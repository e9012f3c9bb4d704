#include "analyzer/base/demangle.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

TEST(Demangle, DemanglesWhatIsMangledAndNothingElse) {
  EXPECT_EQ(demangle("_Z3addPfPKfi"), "add(float*, float const*, int)");
  EXPECT_EQ(demangle("i"), "i");  // not the type int
  EXPECT_EQ(demangle("_Z"), "_Z");
  EXPECT_EQ(demangle(""), "");
  std::string huge = "_Z" + std::string(100'000, 'P');
  EXPECT_EQ(demangle(huge), huge);
}

}  // namespace
}  // namespace nimble::analyzer
