#include "shim/rewrite/capture/uncaptured_work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace nimble::shim {
namespace {

const auto kOne = reinterpret_cast<CUgraph>(0x100), kOther = reinterpret_cast<CUgraph>(0x200);

TEST(StrayWork, IsWhatTheThreadsOfACaptureSubmitPastIt) {
  StrayWork stray;
  stray.submitted(1, 0, nullptr);  // before
  stray.began(7, 1);
  stray.submitted(1, 7, nullptr);
  stray.submitted(1, 0, nullptr);
  stray.submitted(2, 0, nullptr);  // another thread's
  stray.submitted(3, 0, nullptr);  // who turns out to belong to it
  stray.submitted(3, 7, nullptr);
  stray.submitted(3, 0, nullptr);
  EXPECT_EQ(stray.of(kOne), 0u);
  stray.ended(7, kOne);
  EXPECT_EQ(stray.of(kOne), 3u);
  stray.submitted(1, 0, nullptr);
  stray.ended(7, kOne);
  EXPECT_EQ(stray.of(kOne), 3u) << "it has ended before";
  stray.began(8, 1);
  stray.submitted(1, 8, nullptr);
  stray.ended(8, kOther);
  EXPECT_EQ(stray.of(kOther), 0u);
  stray.destroyed(kOne);
  EXPECT_EQ(stray.of(kOne), 0u) << "another has its handle";
}

TEST(StrayWork, IsNotWhatALibraryPreparesForItsOwnLaunches) {
  static const int library = 0, program = 0;
  StrayWork stray([](const void* place) { return place == &library; });
  stray.began(7, 1);
  stray.submitted(1, 7, &library);
  stray.submitted(1, 0, &library);
  stray.ended(7, kOne);
  EXPECT_EQ(stray.of(kOne), 0u);
  stray.began(8, 1);
  stray.submitted(1, 0, &program);
  stray.ended(8, kOne);
  EXPECT_EQ(stray.of(kOne), 1u);
  EXPECT_FALSE(is_in_nccl(&program));
}

TEST(StrayWork, OfCapturesAtOnce) {
  StrayWork stray;
  stray.began(7, 1);
  stray.began(8, 2);
  stray.submitted(1, 7, nullptr);
  stray.submitted(2, 8, nullptr);
  stray.submitted(2, 0, nullptr);
  stray.submitted(1, 9, nullptr);  // whose begin was not seen
  stray.ended(9, kOne);
  stray.ended(7, kOne);
  EXPECT_EQ(stray.of(kOne), 0u);
  stray.ended(8, kOther);
  EXPECT_EQ(stray.of(kOther), 1u);
}

TEST(StrayWork, OfWhatIsRehearsedBesideCaptures) {
  static const int library = 0;
  StrayWork stray([](const void* place) { return place == &library; });
  const std::uint64_t rehearsed[] = {100};
  stray.began(100, 1);
  stray.began(7, 3);
  stray.submitted(1, 0, nullptr, rehearsed);
  stray.submitted(1, 0, nullptr);
  stray.submitted(1, 0, &library);
  stray.submitted(1, 7, nullptr);             // what is captured is not done
  stray.submitted(2, 0, nullptr);             // somebody who
  stray.submitted(2, 0, nullptr, rehearsed);  // turns out to belong to it
  stray.submitted(4, 0, nullptr);
  stray.submitted(3, 0, nullptr, rehearsed);
  EXPECT_EQ(stray.ended(100, nullptr), 2u);
  EXPECT_EQ(stray.ended(100, nullptr), 0u);
  EXPECT_EQ(stray.ended(7, kOne), 3u) << "what is done at once is no part of a capture";
}

// A thread that loads a library waits for this while it holds the loader's lock, which the lookup needs.
TEST(StrayWork, TheLookupOfAReturnAddressBlocksNoOne) {
  static StrayWork* other = nullptr;
  static std::future<void> asked;
  StrayWork stray([](const void*) {
    asked = std::async(std::launch::async, [] { other->of(nullptr); });
    return asked.wait_for(std::chrono::seconds(10)) != std::future_status::ready;
  });
  other = &stray;
  stray.began(7, 1);
  stray.submitted(1, 0, &other);
  stray.ended(7, kOne);
  EXPECT_EQ(stray.of(kOne), 1u);
}

TEST(StrayWork, OfAGraphThatSeveralCapturesMake) {
  StrayWork stray;
  for (const std::uint64_t capture : {7, 8}) {
    stray.began(capture, 1);
    stray.submitted(1, 0, nullptr);
    stray.ended(capture, kOne);
  }
  EXPECT_EQ(stray.of(kOne), 2u);
  stray.began(9, 1);
  stray.submitted(1, 0, nullptr);
  stray.ended(9, nullptr);  // an error has ended it
  EXPECT_EQ(stray.of(nullptr), 0u);
}

}  // namespace
}  // namespace nimble::shim
