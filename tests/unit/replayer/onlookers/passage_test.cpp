#include "replayer/onlookers/passage.h"

#include <gtest/gtest.h>

#include <thread>

namespace nimble {
namespace {

TEST(PassageOfThread, EachThreadHasOneOfItsOwn) {
  PassageOfThread* const mine = PassageOfThread::mine();
  ASSERT_NE(mine, nullptr);
  mine->to = this;
  mine->passage.token = 7;
  PassageOfThread* others = nullptr;
  std::thread([&] {
    others = PassageOfThread::mine();
    ASSERT_NE(others, nullptr);
    EXPECT_NE(others, mine);
    EXPECT_EQ(others->to, nullptr);
  }).join();
  EXPECT_EQ(PassageOfThread::mine(), mine);
  EXPECT_EQ(PassageOfThread::mine()->passage.token, 7u);
  mine->to = nullptr;
}

}  // namespace
}  // namespace nimble
