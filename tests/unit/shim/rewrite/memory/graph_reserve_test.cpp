#include "shim/rewrite/memory/graph_reserve.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class GraphReserveTest : public testing::Test {
 protected:
  void launch(std::uint64_t stream, std::uint64_t mib) { reserve_.launched(here_, stream, mib * kMiB, ++moment_); }
  void wait() { reserve_.waited(here_.context, moment_); }
  std::uint64_t mib() const { return reserve_.bytes(here_.device) / kMiB; }

  const GraphReserve::Place here_{1, reinterpret_cast<CUcontext>(std::uintptr_t{0x10})};
  std::uint64_t moment_ = 0;
  GraphReserve reserve_;
};

TEST_F(GraphReserveTest, LaunchesOfOneStreamShareThePiecesOfTheLargest) {
  EXPECT_EQ(mib(), 0u);
  launch(1, 32);
  EXPECT_EQ(mib(), 32u);
  launch(1, 64);
  EXPECT_EQ(mib(), 64u);
  launch(1, 32);
  EXPECT_EQ(mib(), 64u);
  launch(1, 0);
  EXPECT_EQ(mib(), 64u);
}

TEST_F(GraphReserveTest, LaunchesOfSeveralStreamsShareOnlyWhereTheFirstIsKnownToBeDone) {
  launch(1, 64);
  wait();
  launch(2, 64);
  EXPECT_EQ(mib(), 64u);
  launch(1, 32);
  EXPECT_EQ(mib(), 96u);
  const std::uint64_t before = moment_;
  launch(2, 32);
  reserve_.waited(here_.context, before);  // the last launch of stream 2 may run on
  launch(1, 64);
  EXPECT_EQ(mib(), 128u);
}

TEST_F(GraphReserveTest, StreamsAreDoneIndependently) {
  launch(1, 64);
  const std::uint64_t before = moment_;
  launch(1, 32);
  reserve_.waited_for_stream(1, before);
  reserve_.waited_for_stream(2, moment_);
  launch(2, 32);
  EXPECT_EQ(mib(), 96u);
  reserve_.waited_for_stream(1, moment_);
  launch(2, 96);
  EXPECT_EQ(mib(), 96u);
}

TEST_F(GraphReserveTest, WhatIsLeftComesOnTopAndStaysTheReservesOnceFreed) {
  launch(1, 64);
  reserve_.left(here_, 96 * kMiB);
  EXPECT_EQ(mib(), 160u);
  reserve_.left(here_, 32 * kMiB);
  EXPECT_EQ(mib(), 160u);
  launch(1, 128);
  EXPECT_EQ(mib(), 160u) << "what was freed serves others";
}

TEST_F(GraphReserveTest, TrimmedToWhatIsInUse) {
  launch(1, 64);
  launch(2, 64);
  reserve_.left(here_, 32 * kMiB);
  reserve_.trim(here_.device);
  EXPECT_EQ(mib(), 160u);
  wait();
  EXPECT_EQ(mib(), 160u);
  reserve_.trim(here_.device);
  EXPECT_EQ(mib(), 32u);
  reserve_.left(here_, 0);
  reserve_.trim(here_.device);
  EXPECT_EQ(mib(), 0u);
}

TEST_F(GraphReserveTest, OfADeviceAsLongAsTheProcessWhateverContextsEnd) {
  const GraphReserve::Place there{1, reinterpret_cast<CUcontext>(std::uintptr_t{0x20})}, elsewhere{2, there.context};
  launch(1, 32);
  reserve_.left(elsewhere, 0);
  EXPECT_EQ(reserve_.bytes(elsewhere.device), 0u);
  reserve_.launched(there, 2, 32 * kMiB, 1);
  reserve_.launched(elsewhere, 3, 64 * kMiB, 1);
  EXPECT_EQ(mib(), 64u);
  reserve_.context_ends(here_.context);
  EXPECT_EQ(mib(), 64u);
  reserve_.trim(here_.device);
  EXPECT_EQ(mib(), 32u) << "another context's work";
  reserve_.context_ends(nullptr);
  reserve_.trim(here_.device);
  EXPECT_EQ(mib(), 0u);
  EXPECT_EQ(reserve_.bytes(elsewhere.device), 64 * kMiB);
}

}  // namespace
}  // namespace nimble::shim
