#include "replayer/match/pointer_words.h"

#include <gtest/gtest.h>

#include <array>

namespace nimble {
namespace {

constexpr std::uint64_t kMemory = 0x7f0000001000;

// A driver whose devices reach nothing but what the memory map has.
Reach reach() {
  return {[](void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; },
          [](int* devices) { return *devices = 0, CUDA_SUCCESS; },
          [](int*, CUdevice_attribute, CUdevice) { return CUDA_SUCCESS; }};
}

// A structure of four words: a pointer that is known, a number, and two of which the schedule says nothing.
class PointerWordsTest : public testing::Test {
 protected:
  PointerWordsTest() {
    function_.params = {{0, 32}};
    op_.pointers = {{0, {0, 0, false}}};
    op_.numbers = {8};
    memory_.add({kMemory, 4096, MemoryKind::device});
    set(0, kMemory);
  }

  void set(std::size_t at, std::uint64_t word) { std::memcpy(params_.data() + at, &word, sizeof word); }
  PointerWords::Found look() { return words_.look(op_, function_, params_.data()); }

  const Schedule schedule_;
  ScheduleFunction function_;
  ScheduleOp op_;
  MemoryMap memory_;
  ObjectMap objects_{schedule_, memory_};
  PointerWords words_{memory_, objects_, reach()};
  alignas(8) std::array<std::uint8_t, 32> params_{};
};

TEST_F(PointerWordsTest, NumbersAreNone) {
  set(16, 12345);
  EXPECT_EQ(look().reason, nullptr);
  EXPECT_TRUE(look().lasts);
}

TEST_F(PointerWordsTest, WhatTheScheduleKnowsIsPassedOver) {
  set(8, kMemory);
  EXPECT_EQ(look().reason, nullptr);
}

TEST_F(PointerWordsTest, APointerToMemoryIsFoundAtAnyByte) {
  set(16, kMemory + 100);
  EXPECT_STREQ(look().reason, "a pointer where there was none");
  EXPECT_EQ(look().at, 16u);
  set(16, 0);
  set(19, kMemory + 100);
  EXPECT_STREQ(look().reason, "a pointer where there was none");
  EXPECT_EQ(look().at, 19u);
}

TEST_F(PointerWordsTest, SoIsOneToJustBeforeIt) {
  set(24, kMemory - 16);
  EXPECT_STREQ(look().reason, "a word that may mean a pointer where there was none");
  EXPECT_EQ(look().at, 24u);
}

TEST_F(PointerWordsTest, WithoutAnswersAnAddressMayBeValid) {
  set(16, kMemory + (std::uint64_t{1} << 32));
  EXPECT_EQ(look().reason, nullptr);
  PointerWords blind(memory_, objects_, Reach());
  EXPECT_STREQ(blind.look(op_, function_, params_.data()).reason,
               "a word that could be a pointer where there was none");
}

}  // namespace
}  // namespace nimble
