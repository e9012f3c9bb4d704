// Properties of Nimble's own threads: signals, stack, and what happens to the work that they run.
#include "nimble/internal/process/own_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <memory>

namespace nimble {
namespace {

constexpr std::size_t kSmall = std::size_t{64} << 10, kDeep = std::size_t{600} << 10;

[[gnu::noinline]] int deep(std::size_t bytes) {
  auto* const frame = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 512) frame[i] = static_cast<char>(i);
  return frame[0];
}

void wait_for(const std::atomic<bool>& done) {
  while (!done) sched_yield();
}

TEST(OwnThread, HasAStackOfItsOwnSize) {
  // What the program says threads are to have is not for ours.
  pthread_attr_t before, small;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kSmall);
  ASSERT_EQ(pthread_setattr_default_np(&small), 0);
  static std::size_t bytes;
  static std::atomic<bool> done;
  ASSERT_TRUE(start_own_thread([owned = std::make_unique<int>(3)] {
    pthread_attr_t mine;
    void* low = nullptr;
    pthread_getattr_np(pthread_self(), &mine);
    pthread_attr_getstack(&mine, &low, &bytes);
    pthread_attr_destroy(&mine);
    deep(kDeep);
    done = *owned == 3;
  }));
  wait_for(done);
  pthread_setattr_default_np(&before);
  EXPECT_GE(bytes, kOwnStackBytes);
  EXPECT_LT(bytes, 4 * kOwnStackBytes);
}

TEST(OwnThread, GetsNoSignalsAndIsNotJoined) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  static sigset_t blocked;
  static int detached;
  static std::atomic<bool> done;
  ASSERT_TRUE(start_own_thread([] {
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    pthread_attr_t mine;
    pthread_getattr_np(pthread_self(), &mine);
    pthread_attr_getdetachstate(&mine, &detached);
    pthread_attr_destroy(&mine);
    done = true;
  }));
  wait_for(done);
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGPROF, SIGUSR1, SIGCHLD, SIGPIPE})
    EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
  for (const int own : {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
    EXPECT_EQ(sigismember(&blocked, own), 0) << "of the thread's own doing: " << own;
  EXPECT_EQ(detached, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << "of who starts it: " << signal;
}

// On whose thread what was handed over ends.
class Ends {
 public:
  Ends(std::atomic<bool>& ended, pthread_t& where) : ended_(ended), where_(where) {}
  ~Ends() {
    where_ = pthread_self();
    ended_ = true;
  }

 private:
  std::atomic<bool>& ended_;
  pthread_t& where_;
};

TEST(OwnThread, WhatItRunsEndsOnIt) {
  static std::atomic<bool> ended;
  static pthread_t where, ran;
  ASSERT_TRUE(start_own_thread([owned = std::make_unique<Ends>(ended, where)] { ran = pthread_self(); }));
  wait_for(ended);
  EXPECT_TRUE(pthread_equal(where, ran));
  EXPECT_FALSE(pthread_equal(where, pthread_self()));
}

TEST(OwnThread, WhereThereCanBeNoneNothingIsLeft) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers cannot be without memory";
#endif
  static std::atomic<bool> over;
  static std::atomic<int> ended;
  const auto held = std::make_shared<int>(0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  // The stacks of threads that have ended are kept for others: these are taken first.
  bool starts = true;
  int started = 0;
  while (starts && started < 1000) {
    starts = start_own_thread([held] {
      wait_for(over);
      ended += 1;
    });
    started += starts;
  }
  setrlimit(RLIMIT_AS, &before);
  EXPECT_FALSE(starts);
  EXPECT_EQ(held.use_count(), 1 + started);
  over = true;
  while (ended != started) sched_yield();
}

}  // namespace
}  // namespace nimble
