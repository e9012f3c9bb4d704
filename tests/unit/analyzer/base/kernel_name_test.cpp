#include "analyzer/base/kernel_name.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

TEST(KernelName, HasNoParametersAndNoReturnType) {
  EXPECT_EQ(kernel_name("_Z3addPfPKfi"), "add");
  EXPECT_EQ(kernel_name("_Z3addIfEvPT_"), "add<float>");
  EXPECT_EQ(kernel_name("nvjet_tst_64x8"), "nvjet_tst_64x8");
  EXPECT_EQ(kernel_name("(int)"), "(int)");
  EXPECT_EQ(kernel_name(""), "");
}

}  // namespace
}  // namespace nimble::analyzer
