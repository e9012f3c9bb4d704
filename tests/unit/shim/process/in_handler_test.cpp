#include "shim/process/in_handler.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <thread>

namespace nimble::shim {
namespace {

constexpr int kSignal = SIGUSR2;

[[gnu::noinline]] bool ask_deeply(int depth) {
  volatile char here[3000] = {};  // NOLINT(modernize-avoid-c-arrays): volatile
  here[1] = static_cast<char>(depth);
  const bool answer = depth == 0 ? may_be_in_handler() : ask_deeply(depth - 1);
  return here[1] == static_cast<char>(depth) && answer;
}

volatile int g_depth = 0;
volatile bool g_answer = false;

void ask(int) { g_answer = ask_deeply(g_depth); }

// What is found in a handler that is installed so.
bool found_in_handler(int flags, int depth = 0) {
  struct sigaction action {
  }, before{};
  action.sa_handler = ask;
  action.sa_flags = flags;
  sigaction(kSignal, &action, &before);
  g_depth = depth;
  g_answer = false;
  raise(kSignal);
  sigaction(kSignal, &before, nullptr);
  return g_answer;
}

TEST(InHandler, OutsideItIsInNone) {
  std::thread([] {
    struct sigaction action {
    }, before{};
    action.sa_handler = ask;
    sigaction(kSignal, &action, &before);
    EXPECT_FALSE(ask_deeply(0));
    EXPECT_FALSE(ask_deeply(40));
    sigaction(kSignal, &before, nullptr);
  }).join();
}

TEST(InHandler, WhereTheSignalIsBlocked) { EXPECT_TRUE(found_in_handler(0)); }

TEST(InHandler, OnAStackForHandlers) {
  std::thread([] {
    alignas(16) static std::array<char, 64 << 10> memory;
    const stack_t stack{memory.data(), 0, memory.size()};
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    EXPECT_TRUE(found_in_handler(SA_NODEFER | SA_ONSTACK));
    EXPECT_FALSE(may_be_in_handler());
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }).join();
}

#if defined(__x86_64__)
TEST(InHandler, WhereTheSignalIsNotBlocked) {
  for (const int depth : {0, 1, 40}) {
    EXPECT_TRUE(found_in_handler(SA_NODEFER, depth));
    EXPECT_TRUE(found_in_handler(SA_NODEFER | SA_SIGINFO, depth));
  }
  std::thread([] { EXPECT_TRUE(found_in_handler(SA_NODEFER, 3)); }).join();
}
#endif

}  // namespace
}  // namespace nimble::shim
