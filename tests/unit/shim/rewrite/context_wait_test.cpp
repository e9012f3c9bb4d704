// What is known of a context's work after a while, and what becomes of the thread that asks.
#include "shim/rewrite/context_wait.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

namespace nimble::shim {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// A driver whose work is done on request.
class FakeContext final : public CallContext {
 public:
  FakeContext() { instance_ = this; }
  ~FakeContext() override { instance_ = nullptr; }
  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    if (name == missing) return nullptr;
    if (!std::strcmp(name, "cuCtxSetCurrent")) return reinterpret_cast<void*>(&set);
    if (!std::strcmp(name, "cuCtxSynchronize")) return reinterpret_cast<void*>(&synchronize);
    if (!std::strcmp(name, "cuThreadExchangeStreamCaptureMode")) return reinterpret_cast<void*>(&exchange);
    return nullptr;
  }

  std::string missing;
  std::atomic<bool> busy{false};
  std::atomic<CUresult> set_result{CUDA_SUCCESS}, wait_result{CUDA_SUCCESS};
  std::atomic<int> waits{0}, sets{0};
  std::atomic<CUcontext> current{nullptr}, waited_in{nullptr};
  std::atomic<int> mode{-1};  // in which it waited

 private:
  static CUresult CUDAAPI set(CUcontext context) {
    instance_->current = context;
    ++instance_->sets;
    return instance_->set_result;
  }
  static CUresult CUDAAPI exchange(CUstreamCaptureMode* mode) {
    instance_->mode = *mode;
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI synchronize() {
    instance_->waited_in = instance_->current.load();
    ++instance_->waits;
    while (instance_->busy) std::this_thread::sleep_for(milliseconds(1));
    return instance_->wait_result;
  }
  static inline FakeContext* instance_ = nullptr;
  FunctionInfo function_;
};

class ContextWaitTest : public testing::Test {
 protected:
  ~ContextWaitTest() override {
    context_.busy = false;
    wait_for_helper(kOwn);
  }
  bool ask(milliseconds patience) {
    return is_done_within(patience, kOwn, context_, [this] { ++threads_; });
  }

  static inline const CUcontext kOwn = reinterpret_cast<CUcontext>(std::uintptr_t{64}),
                                kOther = reinterpret_cast<CUcontext>(std::uintptr_t{128});
  FakeContext context_;
  std::atomic<int> threads_{0};
};

TEST_F(ContextWaitTest, AThreadOfItsOwnAsksTheDriver) {
  std::atomic<bool> entered_first{false}, on_another{false};
  const auto caller = pthread_self();
  EXPECT_TRUE(is_done_within(hours(1), kOwn, context_, [&] {
    entered_first = context_.sets == 0 && context_.mode == -1;
    on_another = !pthread_equal(pthread_self(), caller);
  }));
  EXPECT_TRUE(entered_first);
  EXPECT_TRUE(on_another);
  EXPECT_EQ(context_.waited_in, kOwn);
  EXPECT_EQ(context_.mode, CU_STREAM_CAPTURE_MODE_RELAXED) << "else the question could end the program's captures";
  wait_for_helper(kOwn);
  EXPECT_EQ(context_.current, nullptr) << "it is in no context any more";
  EXPECT_TRUE(ask(hours(1))) << "a second one";
}

TEST_F(ContextWaitTest, WhereItTakesLongerOneThreadStaysAndNoOtherBegins) {
  context_.busy = true;
  EXPECT_FALSE(ask(milliseconds(1)));
  EXPECT_FALSE(ask(milliseconds(1)));
  wait_for_helper(kOther);  // of which there is none
  context_.busy = false;
  wait_for_helper(kOwn);
  EXPECT_EQ(threads_, 1);
  EXPECT_TRUE(ask(hours(1)));
}

TEST_F(ContextWaitTest, AContextThatEndsWaitsForTheThreadInIt) {
  context_.busy = true;
  std::atomic<bool> waiting{false};
  EXPECT_FALSE(is_done_within(milliseconds(0), kOwn, context_, [&] {
    waiting = true;
    while (context_.busy) std::this_thread::sleep_for(milliseconds(1));
  }));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(20));
    context_.busy = false;
  });
  wait_for_helper(kOwn);
  EXPECT_FALSE(context_.busy);
  EXPECT_TRUE(waiting);
  EXPECT_EQ(context_.waits, 0) << "the answer came before it had asked: captures are not held back";
  later.join();
}

TEST_F(ContextWaitTest, WhatFailsIsNotDone) {
  context_.wait_result = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_FALSE(ask(hours(1)));
  EXPECT_EQ(context_.waits, 1);
  wait_for_helper(kOwn);
  context_.set_result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  EXPECT_FALSE(ask(hours(1)));
  EXPECT_EQ(context_.waits, 1) << "not in another context";
}

TEST_F(ContextWaitTest, IfTheWaitFailsNothingLeaks) {
  for (const char* const missing : {"cuCtxSetCurrent", "cuCtxSynchronize"}) {
    context_.missing = missing;
    EXPECT_FALSE(ask(hours(1))) << missing;
  }
  context_.missing.clear();
  EXPECT_FALSE(is_done_within(hours(1), nullptr, context_, {}));
  EXPECT_EQ(context_.sets, 0);
  context_.missing = "cuThreadExchangeStreamCaptureMode";
  EXPECT_TRUE(ask(hours(1))) << "an old driver's captures are of one thread";
}

}  // namespace
}  // namespace nimble::shim
