#include "replayer/step_order/program_order.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace nimble {
namespace {

TEST(ProgramOrder, IsAChainOfAllOps) {
  ScheduleSegment segment{2, 5, 2, 0, {{2, 5}}, {3, 2, 5}};
  EXPECT_FALSE(has_program_order(segment));
  const ScheduleSegment chain = in_program_order(segment);
  EXPECT_EQ(chain.order, (std::vector<std::uint32_t>{2, 3, 5}));
  EXPECT_TRUE(has_program_order(chain));
  segment.edges = {{3, 5}, {2, 5}, {2, 3}};  // what a chain has, and more
  EXPECT_TRUE(has_program_order(segment));
}

}  // namespace
}  // namespace nimble
