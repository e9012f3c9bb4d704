// When a recording has the steps that it is to have: as the program marks them, or as they are found in the file.
#include "shim/record/step_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "analyzer/input/trace_store.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kFirstLook = 256, kMuch = std::uint64_t{64} << 20;  // calls, bytes
constexpr std::uint64_t kOpsOfStep = 3;

class StepCountTest : public testing::Test {
 protected:
  ~StepCountTest() override {
    count_.reset();
    queue_.reset();
    std::filesystem::remove(path_);
  }

  void wants(std::uint32_t steps, std::uint64_t limit = kMuch, std::shared_ptr<TraceStore> store = nullptr) {
    queue_ = std::make_unique<RecordQueue>(QueueOptions{.path = path_, .store = std::move(store), .is_read = true});
    count_ = std::make_unique<StepCount>(steps, limit, *queue_);
  }
  void op(std::uint64_t bytes) {
    Call call;
    call.symbol = "cuMemsetD8Async";
    call.kind = CallKind::set;
    call.traced = call.has_stream = true;
    call.host = HostEffect::async;
    call.stream = {nullptr, 0x1001};  // a default stream: nothing to ask the driver
    call.transfer.dst.address = 0x10000;
    call.transfer.width = bytes;
    RecordFacts facts;
    facts.seq = seq_++;
    queue_->push(facts, call, [](Record&) {});
    calls_ += 1;
  }
  void steps(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
      for (std::uint64_t k = 1; k <= kOpsOfStep; ++k) op(8 * k);
  }
  // Begins to look; what it asks for is gone once it looks no more.
  void look() {
    auto alive = std::make_shared<int>(0);
    looks_ = alive;
    count_->look([this, alive = std::move(alive)] {
      asked_ += 1;
      return calls_.load();
    });
  }
  template <class Condition>
  static bool comes(Condition condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }
  bool ends() {
    return comes([this] { return looks_.expired(); });
  }
  // Of the program's next calls none is recorded any more.
  bool is_over() const { return queue_->failed(); }
  std::string text() {
    queue_->join();
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool says(const std::string& words) { return text().find(words) != std::string::npos; }

  const std::string path_ = testing::TempDir() + "step_count." + std::to_string(getpid()) + ".json";
  std::unique_ptr<RecordQueue> queue_;
  std::unique_ptr<StepCount> count_;
  std::uint64_t seq_ = 0;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<int> asked_{0};
  std::weak_ptr<int> looks_;
};

TEST_F(StepCountTest, WhatRepeatsIsFoundWithoutMarks) {
  wants(20);
  steps(kFirstLook);
  look();
  ASSERT_TRUE(ends());
  EXPECT_TRUE(is_over());
  EXPECT_TRUE(says("steps found (NIMBLE_STEPS=20)"));
}

TEST_F(StepCountTest, WhereThereAreTooFewItLooksAgain) {
  wants(2 * kFirstLook);
  steps(kFirstLook);
  look();
  const int before = asked_;
  ASSERT_TRUE(comes([&] { return asked_ > before + 3; }));
  EXPECT_FALSE(is_over());
  steps(2 * kFirstLook);
  ASSERT_TRUE(ends());
  EXPECT_TRUE(is_over());
  EXPECT_TRUE(says("steps found (NIMBLE_STEPS=512)"));
}

TEST_F(StepCountTest, BeforeThereIsMuchNothingIsLookedFor) {
  wants(2);
  steps(kFirstLook / kOpsOfStep);
  ASSERT_LT(calls_, kFirstLook);
  look();
  ASSERT_TRUE(comes([this] { return asked_ >= 3; }));
  EXPECT_FALSE(is_over());
  count_.reset();
  EXPECT_TRUE(ends()) << "its thread lags";
}

TEST_F(StepCountTest, WhatTheProgramMarksIsNotLookedFor) {
  wants(20);
  count_->mark(true, 0, seq_++);
  steps(kFirstLook);
  look();
  ASSERT_TRUE(ends());
  EXPECT_EQ(asked_, 0);
  EXPECT_FALSE(is_over());
}

TEST_F(StepCountTest, BeyondItsBoundItGoesOnWithoutLooking) {
  wants(20, 1000);
  steps(kFirstLook);
  look();
  ASSERT_TRUE(ends());
  EXPECT_FALSE(is_over());
  steps(1);
  EXPECT_FALSE(says("NIMBLE_STEPS")) << "the recording is whole";
}

TEST_F(StepCountTest, WhereThereIsNoFileOnlyMarksCount) {
  wants(2, kMuch, std::make_shared<TraceStore>(kMuch));
  steps(kFirstLook);
  look();
  ASSERT_TRUE(ends());
  EXPECT_FALSE(is_over());
}

TEST_F(StepCountTest, StepsAreCountedAsMarked) {
  wants(2);
  count_->mark(true, 0, seq_++);
  op(8);
  count_->mark(true, 0, seq_++);  // ends one, begins the next
  EXPECT_FALSE(is_over());
  count_->mark(false, 0, seq_++);  // without a call it is none
  op(8);
  count_->mark(false, 0, seq_++);  // none was open
  EXPECT_FALSE(is_over());
  count_->mark(true, 0, seq_++);
  op(8);
  count_->mark(false, 0, seq_++);
  EXPECT_TRUE(is_over());
  EXPECT_TRUE(says("2 steps as marked (NIMBLE_STEPS=2)"));
}

TEST_F(StepCountTest, EachThreadHasStepsOfItsOwn) {
  wants(2);
  op(8);
  for (const std::uint32_t thread : {0u, 1u}) count_->mark(true, thread, seq_++);
  op(8);
  for (const std::uint32_t thread : {0u, 1u}) count_->mark(true, thread, seq_++);
  EXPECT_FALSE(is_over()) << "each has one";
  op(8);
  count_->mark(false, 1, seq_++);
  EXPECT_TRUE(is_over());
}

}  // namespace
}  // namespace nimble::shim
