#include "replayer/match/taken_shapes.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

Call launch(std::uint32_t block, std::uint32_t grid = 1, std::uint64_t function = 0x10) {
  Call call;
  call.kind = CallKind::launch;
  call.launch.function = reinterpret_cast<CUfunction>(function);
  call.launch.grid = {1, grid, 1};
  call.launch.block = {block, 1, 1};
  return call;
}

TEST(TakenShapes, KnowsWhatTheDriverHasTaken) {
  TakenShapes shapes;
  EXPECT_FALSE(shapes.has(launch(32)));
  shapes.answered(launch(32), true);
  EXPECT_TRUE(shapes.has(launch(32)));
  EXPECT_FALSE(shapes.has(launch(64)));
  EXPECT_FALSE(shapes.has(launch(32, 1, 0x20)));
  shapes.answered(launch(64), false);
  EXPECT_TRUE(shapes.has(launch(32)));
  shapes.answered(launch(32), false);
  EXPECT_FALSE(shapes.has(launch(32)));
}

TEST(TakenShapes, GridsAreKnownByTheirLimits) {
  TakenShapes shapes;
  shapes.answered(launch(32), true);
  EXPECT_TRUE(shapes.has(launch(32, 65535)));
  EXPECT_FALSE(shapes.has(launch(32, 65536)));
}

TEST(TakenShapes, ForgetsWhereFunctionsGo) {
  TakenShapes shapes;
  shapes.answered(launch(32), true);
  shapes.forget();
  EXPECT_FALSE(shapes.has(launch(32)));
}

}  // namespace
}  // namespace nimble
