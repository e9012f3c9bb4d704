#include "shim/rewrite/capture/dry_runs.h"

#include <gtest/gtest.h>

#include <thread>

#include "shim/state/stream_ref.h"
#include "tests/unit/shim/record/recorder_support.h"

namespace nimble::shim {
namespace {

const auto kStream = reinterpret_cast<CUstream>(0x1000);

Call launch(std::uint64_t stream) {
  Call call;
  call.kind = CallKind::launch;
  call.traced = call.has_stream = true;
  call.thread = thread_index();
  call.stream = {nullptr, stream};
  return call;
}

class DryRunsTest : public testing::Test {
 protected:
  FakeContext context_;
  CapturesUnderWay captures_{context_};
  DryRuns runs_{captures_};
  const std::uint64_t part_of_it_ = stream_ref(DefaultStream::legacy, kStream).key;
};

TEST_F(DryRunsTest, WhatGoesPastOneIsCounted) {
  EXPECT_TRUE(runs_.begin(kStream));
  runs_.submitted(launch(part_of_it_));
  runs_.submitted(launch(part_of_it_ + 64));
  const auto rehearsed = runs_.end();
  ASSERT_TRUE(rehearsed);
  EXPECT_EQ(rehearsed->strays, 1u);
  EXPECT_EQ(rehearsed->behind, 0u);
  EXPECT_FALSE(runs_.end());
}

TEST_F(DryRunsTest, OfPartsItIsCountedOnce) {
  EXPECT_TRUE(runs_.begin(kStream));
  runs_.submitted(launch(part_of_it_ + 64));
  for (int part = 0; part < 2; ++part) {
    EXPECT_TRUE(runs_.begin_part());
    runs_.submitted(launch(part_of_it_));
    runs_.submitted(launch(part_of_it_ + 64));
  }
  const auto rehearsed = runs_.end();
  ASSERT_TRUE(rehearsed);
  EXPECT_EQ(rehearsed->strays, 3u);
  EXPECT_EQ(rehearsed->behind, 2u);
}

TEST_F(DryRunsTest, AThreadRehearsesOneAtATime) {
  EXPECT_FALSE(runs_.begin_part());
  EXPECT_TRUE(runs_.begin(kStream));
  EXPECT_FALSE(runs_.begin(kStream));
  std::thread([&] {
    EXPECT_FALSE(runs_.end());
    EXPECT_TRUE(runs_.begin(kStream));
    EXPECT_TRUE(runs_.end());
  }).join();
  EXPECT_TRUE(runs_.end());
}

TEST_F(DryRunsTest, ALegacyDefaultStreamCannotCapture) { EXPECT_FALSE(runs_.begin(nullptr)); }

TEST_F(DryRunsTest, WhatIsNoWorkGoesPastNothing) {
  EXPECT_TRUE(runs_.begin(kStream));
  Call call = launch(part_of_it_ + 64);
  call.traced = false;
  runs_.submitted(call);
  call.traced = true;
  call.kind = CallKind::alloc_async;
  runs_.submitted(call);
  EXPECT_EQ(runs_.end()->strays, 0u);
}

}  // namespace
}  // namespace nimble::shim
