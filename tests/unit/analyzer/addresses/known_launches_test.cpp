// What is known of launches is what evaluating them anew says, and one evaluation serves all launches that are alike.
#include "analyzer/addresses/known_launches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace nimble::analyzer {
namespace {

using enum ExpressionOp;

// p[stride * thread], with p in byte 0 and a 32-bit stride in byte 16; and a doubt that needs the number in byte 20 to
// be 7.
AddressExtents extents() {
  AddressExtents result;
  result.expressions = {
      {param, 64, 8, 0, 0},
      {param, 32, 4, 0, 16},
      {ExpressionOp::launch, 32, 0, 0, static_cast<int>(ExpressionLaunch::thread_x)},
      {widen, 64, 1, 0, 0},
      {widen, 64, 2, 0, 0},
      {multiply, 64, 3, 4, 0},
      {add, 64, 0, 5, 0},
      {param, 32, 4, 0, 20},
      {constant, 32, 0, 0, 7},
      {where, 32, 7, 8, static_cast<int>(ExpressionRelation::equal)},
  };
  result.groups = {{{0}, true, true, {{6, 4}}, true, {16}}};
  result.doubts = {{9, "it follows memory", true}};
  return result;
}

struct Launch {
  std::vector<std::uint8_t> params = std::vector<std::uint8_t>(24);
  std::vector<std::uint32_t> pointers{0};
  std::uint32_t threads = 32;

  template <class T>
  Launch& put(std::size_t at, T value) {
    std::memcpy(&params[at], &value, sizeof value);
    return *this;
  }
  LaunchValues values() const { return {params, pointers, {1, 1, 1}, {threads, 1, 1}}; }
};

bool is_same(const std::optional<std::vector<Reach>>& one, const std::optional<std::vector<Reach>>& other) {
  if (one.has_value() != other.has_value()) return false;
  if (!one) return true;
  return std::ranges::equal(*one, *other, [](const Reach& a, const Reach& b) {
    return a.first == b.first && a.last == b.last && a.indexed == b.indexed;
  });
}

TEST(KnownLaunches, SayWhatEvaluationSays) {
  const AddressExtents kernel = extents();
  KnownKernel known(kernel);
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    Launch launch;
    launch.put<std::uint64_t>(0, random()).put<std::uint64_t>(8, random());
    launch.put<std::uint32_t>(16, static_cast<std::uint32_t>(random() % 5));
    launch.put<std::uint32_t>(20, static_cast<std::uint32_t>(random() % 9));
    launch.threads = 1 + static_cast<std::uint32_t>(random() % 3);
    if (random() % 2 == 0) launch.pointers.push_back(8);
    if (random() % 8 == 0) launch.pointers.erase(launch.pointers.begin());
    KnownLaunch& found = known.launch(launch.values());
    EXPECT_TRUE(is_same(found.reach(0, 0), reach(kernel, kernel.groups[0], 0, launch.values())));
    EXPECT_TRUE(
        is_same(found.reach_without_pointer(0), reach_without_pointer(kernel, kernel.groups[0], launch.values())));
    EXPECT_EQ(found.may_happen(0), may_happen(kernel, 9, launch.values()));
  }
  EXPECT_EQ(known.numbers_added(0), numbers_added(kernel, kernel.groups[0]));
  EXPECT_EQ(known.sources(0).params, sources_of(kernel, kernel.groups[0]).params);
  EXPECT_TRUE(known.sources(0).shape);
  EXPECT_EQ(known.sources_of_doubt(0).params, std::vector<std::uint32_t>{20});
  EXPECT_TRUE(known.is_told(0));
}

// The word at byte 8 * n, of four, where n is a byte from 32 on by the block's number.
TEST(KnownLaunches, AnswerTheSameWhereWordsAreTakenByAnIndex) {
  using enum ExpressionOp;
  AddressExtents kernel;
  kernel.expressions = {{ExpressionOp::launch, 32, 0, 0, 3},
                        {number_at, 32, 0, 1, 32},
                        {constant, 32, 0, 0, 3},
                        {shift_left, 32, 1, 2, 0},
                        {param_at, 64, 3, 0, 0}};
  kernel.groups = {{{0, 8, 16, 24}, true, true, {{4, 4}}, true, {}}};
  kernel.of_accesses = true;
  std::mt19937_64 random(1);
  std::size_t taken = 0, left = 0;
  for (int i = 0; i < 500; ++i) {
    KnownKernel known(kernel);
    std::vector<std::uint8_t> params(40);
    for (std::uint32_t at = 32; at < 40; ++at) params[at] = static_cast<std::uint8_t>(random() % (i % 2 == 0 ? 4 : 2));
    std::vector<std::uint32_t> pointers;
    for (std::uint32_t at = 0; at < 32; at += 8)
      if (random() % 4 != 0) pointers.push_back(at);
    const LaunchValues values{params, pointers, {1 + static_cast<std::uint32_t>(random() % 3), 1, 1}, {1, 1, 1}};
    KnownLaunch& found = known.launch(values);
    for (const std::uint32_t word : kernel.groups[0].at) {
      EXPECT_TRUE(is_same(found.reach(0, word), reach(kernel, kernel.groups[0], word, values))) << i << ' ' << word;
      const auto first = params.begin() + 32;
      const bool is_taken = std::count(first, first + values.grid[0], word / 8) != 0;
      EXPECT_TRUE(!is_taken || found.may_take(0, word)) << i << ' ' << word;
      (found.may_take(0, word) ? taken : left) += 1;
    }
    for (std::uint32_t block = 0; block < values.grid[0]; ++block)
      EXPECT_EQ(std::ranges::count(found.sources(0).params, 32u), 1) << "the bytes that say which";
  }
  EXPECT_GT(taken, 300u);
  EXPECT_GT(left, 300u);
}

TEST(KnownLaunches, AreAlikeButForAddresses) {
  const AddressExtents kernel = extents();
  KnownKernel known(kernel);
  const Launch first = Launch().put<std::uint64_t>(0, 0x7f0000000000);
  const KnownLaunch* const one = &known.launch(first.values());
  Launch other = first;
  EXPECT_EQ(&known.launch(other.put<std::uint64_t>(0, 0x7f1234567800).values()), one);
  EXPECT_NE(&known.launch(other.put<std::uint64_t>(8, 1).values()), one) << "a number that could be an address";
  other = first;
  EXPECT_NE(&known.launch(other.put<std::uint32_t>(16, 1).values()), one);
  other = first;
  other.threads = 64;
  EXPECT_NE(&known.launch(other.values()), one);
  other = first;
  other.pointers.push_back(8);
  EXPECT_NE(&known.launch(other.values()), one) << "another word is a pointer";
}

TEST(KnownLaunches, AKernelIsKnownByItsExpressions) {
  KnownKernels kernels;
  const AddressExtents first = extents(), again = extents();
  AddressExtents other = extents();
  other.groups[0].uses[0].bytes = 8;
  KnownKernel& kernel = kernels.of(first);
  EXPECT_EQ(&kernels.of(again), &kernel);
  EXPECT_NE(&kernels.of(other), &kernel);
}

TEST(KnownLaunches, AreForgottenWhenTheyAreTooMany) {
  KnownKernels kernels;
  const AddressExtents kernel = extents();
  std::size_t before = kernels.of(kernel).bytes();
  for (std::uint32_t i = 0; i < 80000; ++i) kernels.of(kernel).launch(Launch().put(16, i).values());
  EXPECT_GT(kernels.of(kernel).bytes(), std::size_t{64} << 20);
  kernels.begin();
  EXPECT_EQ(kernels.of(kernel).bytes(), before);
  kernels.of(kernel).launch(Launch().values());
  before = kernels.of(kernel).bytes();
  kernels.begin();
  EXPECT_EQ(kernels.of(kernel).bytes(), before) << "a few are kept";
}

}  // namespace
}  // namespace nimble::analyzer
