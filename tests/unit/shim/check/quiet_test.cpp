#include "shim/check/quiet.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace nimble::shim {
namespace {

using std::chrono::milliseconds;

TEST(Quiet, NoOneIsAloneWhileACallIsInside) {
  Quiet quiet;
  quiet.enter();
  EXPECT_FALSE(Alone(quiet, milliseconds(1)));
  quiet.leave();
  EXPECT_TRUE(Alone(quiet, milliseconds(1)));
  quiet.enter();
  quiet.leave();
}

TEST(Quiet, OneAtATimeIsAlone) {
  Quiet quiet;
  Alone first(quiet, milliseconds(1));
  ASSERT_TRUE(first);
  EXPECT_FALSE(Alone(quiet, milliseconds(1)));
  first.goes_on();
  EXPECT_FALSE(Alone(quiet, milliseconds(1)));
  { const Alone later(quiet); }
  EXPECT_TRUE(Alone(quiet, milliseconds(1)));
}

TEST(Quiet, CallsWaitForWhoIsAlone) {
  Quiet quiet;
  int plain = 0;  // a thread sanitizer looks on
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        if (const Alone alone(quiet, milliseconds(10'000)); alone) ++plain;
        quiet.enter();
        quiet.leave();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plain, 800);
}

}  // namespace
}  // namespace nimble::shim
