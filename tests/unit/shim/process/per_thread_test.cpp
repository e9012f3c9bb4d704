#include "shim/process/per_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>
#include <vector>

namespace nimble::shim {
namespace {

struct Counted {
  int uses = 0;
};

// The object of a thread that has ended since.
Counted* of_another_thread() {
  Counted* found = nullptr;
  std::thread([&] {
    found = &PerThread<Counted>::get();
    ++found->uses;
  }).join();
  return found;
}

TEST(PerThread, IsOneForEachThread) {
  Counted& mine = PerThread<Counted>::get();
  EXPECT_EQ(&mine, &PerThread<Counted>::get());
  EXPECT_NE(&mine, of_another_thread());
}

TEST(PerThread, ALaterThreadTakesItOver) {
  Counted* const first = of_another_thread();
  const int uses = first->uses;
  for (int i = 1; i <= 100; ++i) {
    EXPECT_EQ(of_another_thread(), first);
    EXPECT_EQ(first->uses, uses + i);
  }
}

// The program's own destructors run before and after ours.
TEST(PerThread, DestructorsThatAskForItGetOneThatNoOtherThreadHas) {
  static pthread_key_t late;
  static Counted* asked_late;
  struct Local {
    ~Local() { PerThread<Counted>::get().uses = -1; }
  };
  ASSERT_EQ(pthread_key_create(&late, [](void*) { asked_late = &PerThread<Counted>::get(); }), 0);
  Counted& mine = PerThread<Counted>::get();
  std::thread([] {
    static thread_local const Local local;
    static_cast<void>(&local);
    pthread_setspecific(late, &late);
    PerThread<Counted>::get();
  }).join();
  ASSERT_NE(asked_late, nullptr);
  EXPECT_NE(asked_late, &mine);
  Counted* const next = of_another_thread();
  EXPECT_NE(next, &mine);
  EXPECT_EQ(of_another_thread(), next);  // and all were given back
  pthread_key_delete(late);
}

TEST(PerThread, TheEndOfAThreadIsToldOnce) {
  ThreadEnd end;
  static int runs = 0;
  end.run = [](ThreadEnd&) { ++runs; };
  std::thread([&] { EXPECT_TRUE(at_thread_end(end)); }).join();
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace nimble::shim
