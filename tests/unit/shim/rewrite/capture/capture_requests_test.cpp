#include "shim/rewrite/capture/capture_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace nimble::shim {
namespace {

const auto kOne = reinterpret_cast<CUgraphExec>(0x10), kOther = reinterpret_cast<CUgraphExec>(0x20);

CaptureRequests::Plan plan() { return std::make_shared<CapturePlan>(); }

TEST(CaptureRequests, NothingIsRequestedInitially) {
  CaptureRequests requests;
  EXPECT_FALSE(requests.any());
  EXPECT_FALSE(requests.learns());
  EXPECT_FALSE(requests.next());
  EXPECT_FALSE(requests.capture_again());
  EXPECT_EQ(requests.last(), nullptr);
}

TEST(CaptureRequests, WhoLearnsGetsEachSlotButOnce) {
  CaptureRequests requests;
  requests.learn(true);
  EXPECT_TRUE(requests.any_learns());
  for (int i = 0; i < 2; ++i) {
    const auto request = requests.next();
    ASSERT_TRUE(request);
    EXPECT_EQ(request->serve, Serve::once);
    EXPECT_EQ(request->plan, nullptr);
  }
  requests.learn(false);
  EXPECT_FALSE(requests.any());
  EXPECT_FALSE(requests.next());
}

TEST(CaptureRequests, CapturesThatComeAgainGetThePlansOfTheirGraphsInOrder) {
  CaptureRequests requests;
  requests.learn(true);
  const CaptureRequests::Plan first = plan();
  requests.made(kOne);
  requests.planned(first);
  requests.made(kOther);  // of which nothing came
  requests.learn(false);
  EXPECT_EQ(requests.last(), kOther);
  EXPECT_TRUE(requests.capture_again());
  EXPECT_TRUE(requests.any());
  auto request = requests.next();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->serve, Serve::planned);
  EXPECT_EQ(request->plan, first);
  request = requests.next();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->serve, Serve::again);
  EXPECT_EQ(request->plan, nullptr);
  EXPECT_FALSE(requests.next());
  EXPECT_FALSE(requests.any());
}

TEST(CaptureRequests, WhoHasLearnedHasItsCapturesOfHereWhateverCameOfIt) {
  CaptureRequests requests;
  requests.learn(true);
  requests.made(kOne);
  requests.learn(false);
  EXPECT_FALSE(requests.capture_again()) << "there is no plan";
  EXPECT_FALSE(requests.any()) << "a recording may end";
  const auto request = requests.next();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->serve, Serve::again);
  EXPECT_FALSE(requests.next());
}

TEST(CaptureRequests, OfGraphsWithoutLearningTheLastOneCounts) {
  CaptureRequests requests;
  requests.made(kOne);
  requests.planned(plan());
  requests.made(kOther);
  EXPECT_FALSE(requests.capture_again());
  EXPECT_FALSE(requests.next()) << "it may do something else now";
}

TEST(CaptureRequests, AfterACaptureThatFailedNoneIsPlanned) {
  CaptureRequests requests;
  requests.learn(true);
  for (int i = 0; i < 2; ++i) {
    requests.made(kOne);
    requests.planned(plan());
  }
  requests.learn(false);
  EXPECT_TRUE(requests.capture_again());
  EXPECT_TRUE(requests.next());
  requests.failed();
  EXPECT_FALSE(requests.next());
}

TEST(CaptureRequests, WhoIsAboutToLearnCapturesNothingAgain) {
  CaptureRequests requests;
  requests.learn(true);
  requests.made(kOne);
  requests.planned(plan());
  EXPECT_TRUE(requests.capture_again());
  requests.drop_plans();
  EXPECT_TRUE(requests.next()) << "it learns already";
  requests.learn(false);
  requests.drop_plans();
  EXPECT_FALSE(requests.next());
}

TEST(CaptureRequests, EachThreadHasItsOwn) {
  CaptureRequests requests;
  requests.learn(true);
  requests.made(kOne);
  std::thread([&] {
    EXPECT_FALSE(requests.learns());
    EXPECT_TRUE(requests.any_learns());
    EXPECT_FALSE(requests.next());
    EXPECT_EQ(requests.last(), nullptr);
    requests.made(kOther);
  }).join();
  EXPECT_EQ(requests.last(), kOne);
}

}  // namespace
}  // namespace nimble::shim
