#include "shim/driver/va_reservation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace nimble::shim {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{1} << 32, kElsewhere = std::uint64_t{1} << 46, kPage = 4096;

// A process's addresses, some of which may be taken.
struct Space {
  std::map<std::uint64_t, std::uint64_t> taken;  // begin -> end
  std::map<std::uint64_t, std::uint64_t> given;  // likewise, by the driver
  int asked = 0;
  int refusals = 0;  // every second of so many is refused
  bool hints = true;

  static bool meets(const std::map<std::uint64_t, std::uint64_t>& ranges, std::uint64_t begin, std::uint64_t end) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const auto& each) { return begin < each.second && each.first < end; });
  }
  std::uint64_t give(std::uint64_t wanted, std::uint64_t bytes) {
    ++asked;
    const bool there = hints && !meets(taken, wanted, wanted + bytes) && !meets(given, wanted, wanted + bytes);
    const std::uint64_t begin = there ? wanted : kElsewhere + static_cast<std::uint64_t>(asked) * (kElsewhere >> 8);
    given[begin] = begin + bytes;
    return begin;
  }
};

class LowAddresses : public ::testing::Test {
 protected:
  LowAddresses() { space_ = {}; }

  static CUresult reserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                          unsigned long long flags) {
    EXPECT_TRUE(alignment == 0 && flags == 0);
    *pointer = space_.give(wanted, bytes);
    return CUDA_SUCCESS;
  }
  static CUresult refuse(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) {
    ++space_.asked;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  static CUresult free(CUdeviceptr pointer, size_t bytes) {
    if (space_.refusals > 0 && --space_.refusals % 2 == 0) return CUDA_ERROR_DEINITIALIZED;
    const auto found = space_.given.find(pointer);
    if (found == space_.given.end() || found->second != pointer + bytes) {
      ADD_FAILURE() << "what was not given came back";
      return CUDA_ERROR_INVALID_VALUE;
    }
    space_.given.erase(found);
    return CUDA_SUCCESS;
  }
  static std::uint64_t kept() {
    std::uint64_t bytes = 0;
    for (const auto& [begin, end] : space_.given) bytes += end - begin;
    return bytes;
  }

  // How many bytes are reserved, as it tells.
  static std::uint64_t reserved(const AddressCalls& calls, std::uint64_t begin, std::uint64_t end) {
    std::vector<AddressRange> taken;
    reserve_addresses(calls, begin, end, taken);
    std::map<std::uint64_t, std::uint64_t> told;
    std::uint64_t bytes = 0;
    for (const AddressRange& range : taken) {
      told[range.address] = range.address + range.bytes;
      bytes += range.bytes;
    }
    EXPECT_EQ(told, space_.given);
    return bytes;
  }

  static Space space_;
};
Space LowAddresses::space_;

TEST_F(LowAddresses, AllAtOnceIfAllIsFree) {
  EXPECT_EQ(reserved({reserve, free}, 97 * kPage, 9999 * kStep), 9999 * kStep - 97 * kPage);
  EXPECT_EQ(space_.asked, 1);
  EXPECT_EQ(space_.given, (std::map<std::uint64_t, std::uint64_t>{{97 * kPage, 9999 * kStep}}));
}

// Nothing is reserved that has the same upper 32 bits as taken memory.
TEST_F(LowAddresses, AllButWhatIsTaken) {
  std::mt19937_64 random(1);
  const auto draw = [&](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 300; ++round) {
    space_ = {};
    const std::uint64_t begin = draw(200 * kStep) / kPage * kPage;
    const std::uint64_t end = begin + (1 + draw(std::uint64_t{1} << draw(45)) / kPage) * kPage;
    std::uint64_t expected = end - begin;
    std::uint64_t at = begin;
    for (std::uint64_t left = draw(6); left > 0; --left) {
      const std::uint64_t from = at + draw(5000 * kStep) / kPage * kPage;
      const std::uint64_t to = from + (1 + draw(20 * kStep) / kPage) * kPage;
      if (to > end) break;
      space_.taken[from] = to;
      const std::uint64_t lost = std::max(from / kStep * kStep, at),
                          lost_end = std::min(((to - 1) / kStep + 1) * kStep, end);
      expected -= lost_end - lost;
      at = lost_end;
    }
    const std::uint64_t got = reserved({reserve, free}, begin, end);
    EXPECT_EQ(got, expected) << "round " << round;
    EXPECT_EQ(got, kept());
    for (const auto& [from, to] : space_.given) {
      EXPECT_GE(from, begin);
      EXPECT_LE(to, end);
    }
  }
}

TEST_F(LowAddresses, NothingStaysOfWhatIsGivenElsewhere) {
  space_.hints = false;
  EXPECT_EQ(reserved({reserve, free}, kStep, 100000 * kStep), 0u);
  EXPECT_TRUE(space_.given.empty());
  EXPECT_LE(space_.asked, 512);
}

TEST_F(LowAddresses, ADriverThatHasNoneIsNotAskedForever) {
  EXPECT_EQ(reserved({refuse, free}, kStep, 100000 * kStep), 0u);
  EXPECT_LE(space_.asked, 512);
}

// free() fails the test where something comes back that was given back before.
TEST_F(LowAddresses, WhatIsRefusedIsStillThereAndGoesBackOnce) {
  space_.taken = {{20 * kStep, 21 * kStep}, {40 * kStep, 41 * kStep}};
  const AddressCalls calls{reserve, free};
  std::vector<AddressRange> taken;
  reserve_addresses(calls, kStep, 64 * kStep, taken);
  ASSERT_GT(taken.size(), 4u);
  const std::uint64_t all = kept();
  space_.refusals = 4;  // the second, and the fourth
  EXPECT_EQ(give_back(calls, taken), CUDA_ERROR_DEINITIALIZED);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(kept(), taken[0].bytes + taken[1].bytes);
  EXPECT_LT(kept(), all);
  EXPECT_EQ(give_back(calls, taken), CUDA_SUCCESS);
  EXPECT_TRUE(taken.empty() && space_.given.empty());
}

TEST_F(LowAddresses, WhatTheDriverDoesNotKnowIsNotOurs) {
  const AddressCalls calls{reserve, [](CUdeviceptr, size_t) { return CUDA_ERROR_INVALID_VALUE; }};
  std::vector<AddressRange> taken{{kStep, kStep}};
  EXPECT_EQ(give_back(calls, taken), CUDA_SUCCESS);
  EXPECT_TRUE(taken.empty()) << "it may be the program's by now";
}

}  // namespace
}  // namespace nimble::shim
