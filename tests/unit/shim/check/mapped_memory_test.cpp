#include "shim/check/mapped_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/shim/rewrite/memory/fake_memory.h"

namespace nimble::shim {
namespace {

constexpr std::uint64_t kGrain = Mapping::kGrain;

class MappedMemoryTest : public testing::Test {
 protected:
  std::uint64_t allocate(std::uint64_t size) {
    const std::optional<std::uint64_t> address = memory_.allocate(size);
    EXPECT_TRUE(address);
    return address.value_or(0);
  }
  CUmemAccess_flags flags(std::uint64_t address) { return driver_.flags.at(address); }

  static constexpr auto kClosed = CU_MEM_ACCESS_FLAGS_PROT_NONE, kReads = CU_MEM_ACCESS_FLAGS_PROT_READ,
                        kOpen = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  FakeMemory driver_;
  MappedMemory memory_{driver_};
};

TEST_F(MappedMemoryTest, EachObjectIsAMappingOfItsOwn) {
  const std::uint64_t small = allocate(5), large = allocate(3 * kGrain + 1);
  EXPECT_EQ(large, small + kGrain) << "side by side";
  EXPECT_EQ(driver_.mapped.size(), 2u);
  EXPECT_EQ(driver_.used(), 5 * kGrain);
  EXPECT_EQ(memory_.find(small + 4)->size, 5u);
  EXPECT_FALSE(memory_.find(small + 5)) << "the program has not asked for that";
  EXPECT_EQ(memory_.find(large + 3 * kGrain)->address, large);
  EXPECT_FALSE(memory_.find(small - 1));
  EXPECT_FALSE(memory_.allocate(0));
  EXPECT_FALSE(memory_.allocate(UINT64_MAX));
}

TEST_F(MappedMemoryTest, WhatIsReleasedComesBackOnceNothingUsesIt) {
  const std::uint64_t first = allocate(kGrain);
  EXPECT_TRUE(memory_.release(first));
  EXPECT_FALSE(memory_.release(first));
  EXPECT_FALSE(memory_.find(first));
  const std::uint64_t before = memory_.now();
  const std::uint64_t second = allocate(kGrain);
  EXPECT_NE(second, first);
  memory_.release(second);
  EXPECT_EQ(memory_.released(), 2 * kGrain);
  memory_.settle(before);
  EXPECT_EQ(memory_.released(), kGrain);
  EXPECT_EQ(allocate(kGrain), first);
  EXPECT_NE(allocate(kGrain), second) << "it was released later";
  EXPECT_EQ(driver_.used(), 3 * kGrain);
}

TEST_F(MappedMemoryTest, GivesBackWhatIsUnused) {
  const std::uint64_t first = allocate(kGrain), second = allocate(kGrain);
  EXPECT_FALSE(memory_.give_back());
  memory_.release(first);
  memory_.settle(memory_.now());
  EXPECT_TRUE(memory_.give_back());
  EXPECT_EQ(driver_.used(), kGrain);
  EXPECT_EQ(allocate(kGrain), first) << "its addresses are there still";
  EXPECT_TRUE(memory_.find(second));
  memory_.clear();
  EXPECT_TRUE(driver_.physical.empty());
  EXPECT_FALSE(memory_.find(second));
}

TEST_F(MappedMemoryTest, UnusedMemoryIsTakenBeforeThereIsNone) {
  const std::uint64_t first = allocate(2 * kGrain);
  driver_.room = 2 * kGrain;
  EXPECT_FALSE(memory_.allocate(kGrain));
  memory_.release(first);
  memory_.settle(memory_.now());
  EXPECT_TRUE(memory_.allocate(kGrain));
  EXPECT_EQ(driver_.used(), kGrain);
}

TEST_F(MappedMemoryTest, NoDeviceNoMemory) {
  driver_.supports = false;
  EXPECT_FALSE(memory_.allocate(kGrain));
  EXPECT_TRUE(memory_.empty());
}

TEST_F(MappedMemoryTest, RestrictsAndOpens) {
  std::vector<std::uint64_t> objects;
  for (int i = 0; i < 5; ++i) objects.push_back(allocate(100));
  const std::vector<MappedMemory::Allowed> allowed{{objects[1], false}, {objects[3], true}, {12345, true}};
  EXPECT_FALSE(memory_.is_restricted());
  const MappedMemory::Restriction done = memory_.restrict_to(allowed);
  EXPECT_TRUE(done.good && memory_.is_restricted());
  EXPECT_EQ(done.closed.size(), 3u);
  ASSERT_EQ(done.read_only.size(), 1u);
  EXPECT_EQ(done.read_only.front().address, objects[1]);
  EXPECT_EQ(flags(objects[0]), kClosed);
  EXPECT_EQ(flags(objects[1]), kReads);
  EXPECT_EQ(flags(objects[2]), kClosed);
  EXPECT_EQ(flags(objects[3]), kOpen);
  const std::vector<MappedMemory::Allowed> other{{objects[2], true}};
  memory_.restrict_to(other);
  EXPECT_EQ(flags(objects[1]), kClosed);
  EXPECT_EQ(flags(objects[2]), kOpen);
  EXPECT_TRUE(memory_.open());
  for (const std::uint64_t object : objects) EXPECT_EQ(flags(object), kOpen);
  EXPECT_FALSE(memory_.is_restricted());
}

TEST_F(MappedMemoryTest, ClosesWhatIsReleased) {
  const std::uint64_t first = allocate(1), second = allocate(1);
  memory_.release(first);
  const std::vector<MappedMemory::Allowed> allowed{{first, true}, {second, true}};
  EXPECT_TRUE(memory_.restrict_to(allowed).closed.empty()) << "it is no object";
  EXPECT_EQ(flags(first), kClosed);
  memory_.settle(memory_.now());
  EXPECT_EQ(allocate(1), first);
  EXPECT_TRUE(memory_.open());
  EXPECT_EQ(flags(first), kOpen);
}

}  // namespace
}  // namespace nimble::shim
