// Whether an address leads anywhere, by what drivers may answer.
#include "nimble/internal/address_probe.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace nimble {
namespace {

constexpr CUdeviceptr kKnown = 0x500000;
CUresult g_unknown = CUDA_ERROR_INVALID_VALUE;  // what the driver says of other addresses
int g_pageable = 0;                             // of the second device

CUresult pointer_attribute(void*, CUpointer_attribute, CUdeviceptr at) {
  return at == kKnown ? CUDA_SUCCESS : g_unknown;
}
CUresult device_count(int* count) { return *count = 2, CUDA_SUCCESS; }
CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS && device == 1 ? g_pageable : 0;
  return CUDA_SUCCESS;
}

class ReachTest : public testing::Test {
 protected:
  void SetUp() override {
    g_unknown = CUDA_ERROR_INVALID_VALUE;
    g_pageable = 0;
  }
  static Reach reach() { return Reach(pointer_attribute, device_count, device_attribute); }
};

TEST_F(ReachTest, WhatTheDriverDoesNotKnowLeadsNowhere) {
  EXPECT_TRUE(reach().nowhere(0x9500000095));
  EXPECT_FALSE(reach().nowhere(kKnown));
}

TEST_F(ReachTest, AnyOtherErrorTellsNothing) {
  for (const CUresult answer : {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_ILLEGAL_ADDRESS}) {
    g_unknown = answer;
    EXPECT_FALSE(reach().nowhere(0x9500000095)) << answer;
  }
}

TEST_F(ReachTest, WithoutADriverNothingIsKnown) {
  EXPECT_FALSE(Reach().nowhere(0x9500000095));
  EXPECT_FALSE(Reach(pointer_attribute, nullptr, device_attribute).nowhere(0x9500000095));
  EXPECT_FALSE(Reach(pointer_attribute, device_count, [](int*, CUdevice_attribute, CUdevice) {
                 return CUDA_ERROR_INVALID_VALUE;
               }).nowhere(0x9500000095));
}

TEST_F(ReachTest, HostMemoryCountsWhereADeviceReachesIt) {
  int here = 0;
  const auto on_stack = reinterpret_cast<std::uint64_t>(&here);
  EXPECT_TRUE(reach().nowhere(on_stack));
  EXPECT_TRUE(reach().lasts());
  g_pageable = 1;
  EXPECT_FALSE(reach().lasts()) << "the process may map memory unseen";
  EXPECT_FALSE(reach().nowhere(on_stack));
  EXPECT_TRUE(reach().nowhere(0x9500000095)) << "nothing is mapped there";
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_FALSE(reach().nowhere(reinterpret_cast<std::uint64_t>(page)));
  ::munmap(page, 4096);
  EXPECT_TRUE(reach().nowhere(reinterpret_cast<std::uint64_t>(page)));
}

}  // namespace
}  // namespace nimble
