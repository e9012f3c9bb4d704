#include "shim/rewrite/memory/graph_heap.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace nimble::shim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Measured {
  const char* work;  // sizes in MiB, and -N for the release of the Nth of them
  std::uint64_t needs, keeps;
};

// On an H200 with driver 580.159 and CUDA 13.0: memory reserved for graphs after a launch, and once trimmed.
constexpr Measured kMeasured[] = {
    {"1 -0", 32, 0},
    {"20 20 -0 -1", 64, 0},
    {"20 20 1 -0 -1 -2", 64, 0},
    {"40 -0", 64, 0},
    {"40 40 -0 -1", 128, 0},
    {"40 8 -0 -1", 64, 0},
    {"40 8 20 -0 -1 -2", 96, 0},
    {"40 24 -0 -1", 64, 0},
    {"40 25 -0 -1", 96, 0},
    {"16 16 -0 -1", 32, 0},
    {"16 17 -0 -1", 64, 0},
    {"16 16 16 -0 -1 -2", 64, 0},
    {"40 -0 33 -1", 64, 0},
    {"40 -0 20 20 -1 -2", 64, 0},
    {"96 -0 40 40 -1 -2", 96, 0},
    {"1 1 1 1 1 1 1 1 1 1 -0 -1 -2 -3", 32, 32},
    {"40", 64, 64},
    {"20 40 -1", 96, 32},
    {"40 20 -0", 64, 32},
    {"20 20", 64, 64},
    {"20 20 -0", 64, 64},
    {"20 20 20 -1", 64, 64},
    {"40 8 -0", 64, 32},
    {"8 40 -1", 96, 32},
    {"64 1 -0", 96, 32},
    {"100 100 -0 -1", 256, 0},
    {"100 28 -0 -1", 128, 0},
    {"60 60 4 4 4 -0 -1", 160, 64},
    {"31 2 -0 -1", 64, 0},
    {"2 31 31 -0 -1 -2", 64, 0},
    {"5 5 5 -1 4 -0 -2 -3", 32, 0},
    {"40 40 -0 40 -1 -2", 128, 0},
    {"40 40 -0 60 -1 -2", 192, 0},
};

TEST(GraphHeap, IsTheDriversAsMeasured) {
  for (const Measured& one : kMeasured) {
    GraphHeap heap;
    std::istringstream words(one.work);
    std::uint64_t count = 0;
    for (std::string word; words >> word;) {
      if (word[0] == '-') {
        heap.release(std::stoul(word.substr(1)));
      } else {
        heap.allocate(count++, std::stoul(word) * kMiB);
      }
    }
    EXPECT_EQ(heap.bytes(), one.needs * kMiB) << one.work;
    EXPECT_EQ(heap.held(), one.keeps * kMiB) << one.work;
  }
}

TEST(GraphHeap, WhatIsNotThereIsNotReleasedAndNothingTakesNoRoom) {
  GraphHeap heap;
  heap.release(1);
  heap.allocate(1, 0);
  EXPECT_EQ(heap.bytes(), 0u);
  heap.allocate(1, kMiB);
  heap.allocate(1, 64 * kMiB);
  EXPECT_EQ(heap.bytes(), 32 * kMiB) << "the name is taken";
  heap.release(1);
  heap.allocate(1, kMiB);
  EXPECT_EQ(heap.held(), 32 * kMiB);
}

}  // namespace
}  // namespace nimble::shim
