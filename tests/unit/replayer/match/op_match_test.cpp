// Which calls are what the schedule says: parameters, kernels, tables and variables, one op at a time.
#include "replayer/match/op_match.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replayer/step/step_player.h"
#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/step/player_support.h"

namespace nimble {
namespace {

// A test changes the schedule or what is known of the kernel, starts, and makes calls.
class OpMatchTest : public testing::Test {
 protected:
  // Knows one kernel, whatever its handle.
  struct Context final : CallContext {
    FunctionInfo info;
    const FunctionInfo& function(CUfunction) override { return info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  };

  // The op that match() compares with, the launch of W; and the next one, which is in no graph.
  static constexpr std::uint32_t kLaunch = 4, kDirect = 5;

  // The second parameter has room for a pointer: the word at byte 8 was none when it was recorded.
  OpMatchTest() {
    schedule_.functions[0].params = {{0, 8}, {8, 8}};
    context_.info.name = "k";
    context_.info.params = schedule_.functions[0].params;
  }

  // Begins with what the schedule says by now, and with W as the program's only memory.
  void start(const Reach& reach = Reach()) {
    memory_.emplace().add({kWeights, 64, MemoryKind::device});
    objects_.emplace(schedule_, *memory_);
    live_.emplace(schedule_, context_, *memory_, *objects_, reach);
  }
  // Launches the kernel with W, or another pointer, and a word. Null, or why that is not what the schedule says.
  const char* match(std::uint64_t word, std::uint64_t pointer = kWeights) {
    void* params[] = {&pointer, &word};
    Call c = call(CallKind::launch);
    c.launch.function = FakeDriver::kKernel;
    c.launch.grid = c.launch.block = {1, 1, 1};
    c.launch.kernel_params = params;
    return live_->match(kLaunch, c);
  }
  // The driver knows of no memory anywhere.
  static Reach nothing_known() {
    return Reach([](void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; },
                 [](int* count) { return *count = 1, CUDA_SUCCESS; },
                 [](int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; });
  }
  static std::string text(const char* reason) { return reason ? reason : ""; }

  Schedule schedule_ = schedule();
  Context context_;
  std::optional<MemoryMap> memory_;
  std::optional<ObjectMap> objects_;
  std::optional<OpMatch> live_;
};

TEST_F(OpMatchTest, AScalarThatBecomesAPointerIsADivergence) {
  start();
  EXPECT_EQ(match(1), nullptr);
  EXPECT_NE(match(kWeights + 8), nullptr);    // a pointer to memory that we know
  EXPECT_NE(match(0x7f0000000000), nullptr);  // and one to memory that we do not
  EXPECT_EQ(match(0x3f8000003f800000), nullptr) << "two floats";
}

// Two adjacent sizes, or stale padding: the driver knows no memory there.
TEST_F(OpMatchTest, AWordThatLeadsNowhereMayLookLikeAnAddress) {
  static int questions = 0;
  static CUdeviceptr known = 0;
  start(Reach(
      [](void*, CUpointer_attribute, CUdeviceptr at) {
        ++questions;
        return at == known || at >= 0x7f0000000000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      },
      [](int* count) { return *count = 1, CUDA_SUCCESS; },
      [](int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; }));
  EXPECT_EQ(match(0x9500000095), nullptr);
  EXPECT_STREQ(match(0x7f0000000008), "a word that could be a pointer where there was none");
  EXPECT_STREQ(match(kWeights + 8), "a pointer where there was none") << "whatever the driver says";
  EXPECT_EQ(match(0x9400000094), nullptr);
  // What the driver said holds until memory comes near, or code.
  const int before = questions;
  objects_->changed();
  EXPECT_EQ(match(0x9500000095), nullptr);
  EXPECT_EQ(questions, before);
  known = 0x9500000095;
  memory_->add({0x9500001000, 64, MemoryKind::device});
  objects_->changed();
  EXPECT_STREQ(match(0x9500000095), "a word that could be a pointer where there was none");
  known = 0x9400000094;
  memory_->nearby().may_have_come();
  objects_->changed();
  EXPECT_STREQ(match(0x9400000094), "a word that could be a pointer where there was none");
}

// The process may map memory without a call that we see.
TEST_F(OpMatchTest, WhereDevicesReachPageableMemoryNoAnswerLasts) {
  // In the midst of much that is free: what else is mapped meanwhile comes to its end.
  constexpr std::size_t kFree = std::size_t{1} << 30;
  void* const free = mmap(nullptr, kFree, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(free, MAP_FAILED);
  ASSERT_EQ(munmap(free, kFree), 0);
  void* const place = static_cast<char*>(free) + kFree / 2;
  start(Reach([](void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; },
              [](int* count) { return *count = 1, CUDA_SUCCESS; },
              [](int* value, CUdevice_attribute, CUdevice) { return *value = 1, CUDA_SUCCESS; }));
  const auto word = reinterpret_cast<std::uint64_t>(place);
  EXPECT_EQ(match(word), nullptr);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  ASSERT_EQ(mmap(place, 4096, PROT_READ, kFlags, -1, 0), place);
  EXPECT_STREQ(match(word), "a word that could be a pointer where there was none");
  munmap(place, 4096);
}

// The program has freed what lay there, which is all that the driver would know of it.
TEST_F(OpMatchTest, AWordThatWasLeftOverFromTheArenaPointsToNothing) {
  constexpr std::uint64_t kArena = 0x90000;
  start();
  memory_->add({kArena, 256, MemoryKind::stream_ordered, true});
  objects_->changed();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(match(kArena + 8), nullptr);
    EXPECT_EQ(match(kArena + 8), nullptr);
    objects_->take(1, true);  // 64 bytes at its begin
    EXPECT_STREQ(match(kArena + 8), "a pointer where there was none") << "looked at each time";
    EXPECT_EQ(live_->mismatch_at(), 8u);
    EXPECT_STREQ(match(kArena + 64), "a word that may mean a pointer where there was none") << "its end";
    EXPECT_EQ(match(kArena + 65), nullptr) << "past it";
    EXPECT_EQ(live_->mismatch_at(), kNone);
    objects_->take(1, false);
  }
}

// What the analyzer does not trust where it is recorded: a kernel may come to memory by it.
TEST_F(OpMatchTest, AWordThatMayStandForMemoryIsADivergence) {
  constexpr std::uint64_t kOther = 0x7f0000006000, kArena = 0x7f0000090000;
  constexpr const char* kWhy = "a word that may mean a pointer where there was none";
  ScheduleObject next = schedule_.objects[1];
  next.plan_offset = 64;
  schedule_.objects.push_back(next);
  start(nothing_known());
  memory_->add({kOther, 64, MemoryKind::device});
  objects_->changed();
  EXPECT_STREQ(match(kOther - 4), kWhy) << "counted from one";
  EXPECT_STREQ(match(kOther - 255), kWhy);
  EXPECT_EQ(match(kOther - 256), nullptr);
  EXPECT_STREQ(match(kOther + 64), kWhy) << "the end of what nothing else leads into";
  EXPECT_EQ(match(kWeights + 64), nullptr) << "that of what a pointer leads into";
  EXPECT_EQ(match(kOther + 65), nullptr);
  EXPECT_STREQ(match(kOther + 8 + (std::uint64_t{5} << 48)), kWhy) << "with a tag";
  EXPECT_EQ(match(kOther + 64 + (std::uint64_t{5} << 48)), nullptr);
  memory_->add({kArena, 256, MemoryKind::stream_ordered, true});
  objects_->changed();
  EXPECT_EQ(match(kArena - 4), nullptr) << "the program has nothing there";
  objects_->take(1, true);  // 64 bytes at its begin
  EXPECT_STREQ(match(kArena - 4), kWhy);
  EXPECT_EQ(match(kArena + 64), nullptr) << "its end, but left over from another one, which has its place there";
}

TEST_F(OpMatchTest, APointerInAPackedClassIsADivergence) {
  schedule_.functions[0].params = {{0, 8}, {8, 16}};
  context_.info.params = schedule_.functions[0].params;
  start(nothing_known());
  const auto match_packed = [&](std::uint64_t word, unsigned at) {
    std::uint8_t bytes[16] = {};
    std::memcpy(bytes + at, &word, sizeof word);
    std::uint64_t pointer = kWeights;
    void* params[] = {&pointer, bytes};
    Call c = call(CallKind::launch);
    c.launch.function = FakeDriver::kKernel;
    c.launch.grid = c.launch.block = {1, 1, 1};
    c.launch.kernel_params = params;
    return live_->match(kLaunch, c);
  };
  memory_->add({0x7f0000006000, 64, MemoryKind::device});
  objects_->changed();
  EXPECT_EQ(match_packed(0x7f0000007000, 4), nullptr);
  EXPECT_STREQ(match_packed(0x7f0000006008, 4), "a pointer where there was none");
  EXPECT_EQ(live_->mismatch_at(), 12u);
  EXPECT_STREQ(match_packed(0x7f0000006008, 8), "a pointer where there was none");
  schedule_.ops[kLaunch].numbers = {8, 16};
  start(nothing_known());
  memory_->add({0x7f0000006000, 64, MemoryKind::device});
  EXPECT_EQ(match_packed(0x7f0000006008, 4), nullptr) << "two numbers, side by side";
}

// A step that passes matches, too, and no graph holds its values.
TEST_F(OpMatchTest, WhatNoGraphHoldsSaysNothingOfWhatOneHolds) {
  constexpr std::uint64_t kOther = 0x6000;
  start();
  memory_->add({kOther, 64, MemoryKind::device});
  objects_->changed();
  EXPECT_EQ(match(1), nullptr);
  live_->bound(kLaunch);
  EXPECT_EQ(match(1), nullptr);  // and is known now
  objects_->begin_step();
  EXPECT_EQ(match(1, kOther), nullptr) << "two buffers that swap";
  EXPECT_EQ(objects_->base(0), kOther);
  objects_->begin_step();
  EXPECT_EQ(match(1), nullptr);
  EXPECT_EQ(objects_->base(0), kWeights);
}

// Where a count of pointers rests on other bytes of the parameters, these must stay.
TEST_F(OpMatchTest, PinnedParametersMustNotChange) {
  schedule_.ops[kLaunch].equal = {{10, {7, 0}}};
  schedule_.ops[kLaunch].numbers = {8};
  start();
  EXPECT_EQ(match(0x70001), nullptr);
  EXPECT_EQ(match(0x70002), nullptr);
  EXPECT_STREQ(match(0x80002), "parameters that must not change");
  EXPECT_STREQ(match(0x80002), "parameters that must not change") << "a second time, too";
}

// cuDNN passes structures whose padding holds whatever lay there.
TEST_F(OpMatchTest, ABarriersParametersMayHoldAnything) {
  schedule_.ops[kLaunch].barrier = true;
  schedule_.ops[kLaunch].pointers.clear();
  start();
  for (const std::uint64_t word : {std::uint64_t{0}, kWeights, std::uint64_t{0x7f0000000000}}) {
    EXPECT_EQ(match(word, 0x7f1234567890), nullptr);
    EXPECT_TRUE(live_->changed(kLaunch));
    live_->bound(kLaunch);
    EXPECT_EQ(match(word, 0x7f1234567890), nullptr);
    EXPECT_FALSE(live_->changed(kLaunch)) << "the graph holds these bytes by now";
  }
}

TEST_F(OpMatchTest, AWordThatIsKnownToBeANumberMayLookLikeAnything) {
  schedule_.ops[kLaunch].numbers = {8};
  start();
  for (const std::uint64_t word : {std::uint64_t{0x7f0000000000}, kWeights + 8}) EXPECT_EQ(match(word), nullptr);
}

// What was declared of a kernel holds for the image that was recorded.
TEST_F(OpMatchTest, AKernelFromAnotherImageIsADivergence) {
  ScheduleFunction& kernel = schedule_.functions[0];
  kernel.self_contained = true;
  FakeDriver driver;
  const DriverApi api = driver.api();
  Counters counters;
  StepPlayer player(schedule_, driver, api, counters);
  Call c = call(CallKind::alloc_async);
  c.memory.size = 64;
  EXPECT_FALSE(player.before(c));
  start();
  EXPECT_STREQ(match(1), "a kernel of another build");
  context_.info.constants = true;
  start();
  EXPECT_STRNE(match(1), "a kernel of another build") << "nothing writes what it may also read";
  const MemoryKind weights = std::exchange(schedule_.objects[0].memory, MemoryKind::global);
  start();
  EXPECT_STREQ(match(1), "a kernel of another build") << "the step names a variable";
  schedule_.objects[0].memory = weights;
  context_.info.constants = false;
  kernel.self_contained = false;
  kernel.code = 5;  // what it was seen to do holds for just its code
  start();
  EXPECT_STREQ(match(1), "a kernel of another build");
  kernel.code = 0;
  EXPECT_STRNE(match(1), "a kernel of another build");
}

// Accesses rely on a host copy's content: the same pointers, and no others.
TEST_F(OpMatchTest, ATableMustLeadWhereItLed) {
  constexpr std::uint64_t kOther = 0x6000, kHost = 0x10, kTable = 0x7000;
  alignas(8) std::uint64_t table[4] = {};
  schedule_.objects.push_back({MemoryKind::device, 32});
  schedule_.objects.push_back({MemoryKind::device, 64});
  ScheduleOp& copy = schedule_.ops[kDirect];
  copy.kind = CallKind::copy;
  copy.dst = {2, 0, true};
  copy.width = sizeof table;
  copy.payload = {{8, {0, 0, false}}, {24, {3, 0, false}}};
  start();
  memory_->add({kOther, 64, MemoryKind::device});
  memory_->add({kTable, 32, MemoryKind::device});
  const auto copied = [&](const std::vector<std::uint64_t>& words, bool host = true) {
    objects_->begin_step();
    std::copy(words.begin(), words.end(), table);
    Call c = call(CallKind::copy);
    c.transfer.dst.address = kTable;
    c.transfer.src.address = reinterpret_cast<std::uint64_t>(table);
    c.transfer.width = sizeof table;
    c.transfer.host_source = host;
    return text(live_->match(kDirect, c));
  };
  EXPECT_EQ(copied({1, kWeights, kHost, kOther}), "");
  EXPECT_EQ(copied({2, kWeights + 8, 0, kOther + 63}), "") << "elsewhere in the same objects";
  EXPECT_EQ(copied({0, kOther, 0, kWeights}), "") << "two objects that swap their places";
  EXPECT_EQ(copied({0, kWeights, 0, kOther}), "");
  EXPECT_EQ(copied({0, kWeights, 0, kWeights}), "a table that points to another object");
  EXPECT_EQ(copied({0, kWeights, 0, 0}), "a table that points to another object");
  EXPECT_EQ(copied({kOther, kWeights, 0, kOther}), "a table with a pointer where there was none");
  EXPECT_EQ(copied({0, kWeights, 0, kOther}, false), "a copy from other memory");
  // Pinned memory is the host's, whatever the entry point says.
  memory_->add({reinterpret_cast<std::uint64_t>(table), sizeof table, MemoryKind::pinned});
  EXPECT_EQ(copied({0, kWeights, 0, kOther}, false), "");
}

// Kernels may reach variables of their image that the program never asks for.
TEST_F(OpMatchTest, AVariableIsFoundByTheKernelThatTouchesIt) {
  schedule_.objects.push_back({MemoryKind::global, 16});
  schedule_.functions[0].proven.emplace();
  schedule_.functions[0].globals = {{"counter", 2, true, true}};
  KernelProof& proof = context_.info.proof.emplace();
  proof.globals = {{"counter", 0x8000, 16, true, true}};
  // The kernel is seen for the first time.
  const auto first_seen = [&] {
    start();
    const char* const reason = match(1);
    EXPECT_EQ(objects_->base(2), reason ? 0u : 0x8000u);
    return text(reason);
  };
  EXPECT_EQ(first_seen(), "");
  proof.globals[0].bytes = 8;
  EXPECT_EQ(first_seen(), "a variable at another place");
  proof.globals[0] = {"counter", 0x8000, 16, true, false};
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  proof.globals.clear();
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  proof.globals = {{"counter", 0x8000, 16, true, true}};
  proof.stored = {0};
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  proof.stored.clear();
  schedule_.functions[0].proven = {{{0}, false, true, {{8, 4, true, 1}}}};
  proof.accesses = *schedule_.functions[0].proven;
  EXPECT_EQ(first_seen(), "");
  proof.accesses[0].when[0].equal = false;
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  proof.accesses[0].when[0].equal = true;
  proof.extents.expressions = {{ExpressionOp::constant, 32, 0, 0, 1}};
  proof.extents.doubts = {{0, "it may follow an address", true}};
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  schedule_.functions[0].doubts = digest_of_doubts(proof.extents);
  EXPECT_EQ(first_seen(), "");
  proof.extents.expressions[0].value = 2;
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  // Nor one that takes a pointer by another index.
  proof.extents.doubts.clear();
  schedule_.functions[0].doubts = 0;
  EXPECT_EQ(first_seen(), "");
  proof.extents.expressions = {{ExpressionOp::launch, 32, 0, 0, 4}, {ExpressionOp::param_at, 64, 0, 0, 0}};
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
  schedule_.functions[0].doubts = digest_of_doubts(proof.extents);
  EXPECT_EQ(first_seen(), "");
  proof.extents.expressions[0].value = 3;
  EXPECT_EQ(first_seen(), "a kernel with a different proof");
}

}  // namespace
}  // namespace nimble
