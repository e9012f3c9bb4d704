#include "analyzer/kernel_code/ptx/compiler_names.h"

#include <gtest/gtest.h>

namespace nimble::code {
namespace {

TEST(Names, OfWhatNobodyWrites) {
  for (const char* name :
       {"$str", "$str$1", "__unnamed_12", "__cudart_i2opi_f", "_$_str", "_$_str_$_2", "_$_str_$_1_$_20"})
    EXPECT_TRUE(names_constant(name)) << name;
}

TEST(Names, OfAnythingElse) {
  for (const char* name : {"", "str", "$str$x", "$string", "__unnamed_x", "cudart_", "_$_strings", "_$_str_$_",
                           "_$_str_$_a", "_$_str_$_1x", "_$_str_1", "_$_str_$_1_$_", "x_$_str", "flag"})
    EXPECT_FALSE(names_constant(name)) << name;
}

}  // namespace
}  // namespace nimble::code
