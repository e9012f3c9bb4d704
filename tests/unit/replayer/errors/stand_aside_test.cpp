#include "replayer/errors/stand_aside.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

TEST(StandAside, TheFirstReasonStays) {
  StandAside standing;
  EXPECT_FALSE(standing.aside());
  standing.keep_order(CUDA_SUCCESS);
  EXPECT_FALSE(standing.aside());
  standing.keep_order(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(standing.why(), "the driver refused a call that keeps streams in order (CUDA_ERROR_OUT_OF_MEMORY)");
  standing.stand_aside("something else");
  EXPECT_EQ(standing.why(), "the driver refused a call that keeps streams in order (CUDA_ERROR_OUT_OF_MEMORY)");
  EXPECT_FALSE(standing.ended());
}

TEST(StandAside, AContextThatEndsIsTheEndOnlyWhereNothingCameBefore) {
  StandAside at_the_end, late;
  at_the_end.end();
  EXPECT_TRUE(at_the_end.aside());
  EXPECT_TRUE(at_the_end.ended());
  late.stand_aside("for a test");
  late.end();
  EXPECT_EQ(late.why(), "for a test");
  EXPECT_FALSE(late.ended());
}

TEST(StandAside, NewsAreTakenOnce) {
  StandAside standing;
  EXPECT_FALSE(standing.has_news());
  standing.tell("old");
  standing.tell("new");
  EXPECT_TRUE(standing.has_news());
  EXPECT_EQ(standing.take_news(), "new");
  EXPECT_FALSE(standing.has_news());
}

}  // namespace
}  // namespace nimble
