// Ranges of expressions, against what these are when they are computed.
#include "analyzer/addresses/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/analyzer/addresses/interpreter.h"

namespace nimble::analyzer {
namespace {

using enum ExpressionOp;
using Random = std::mt19937_64;

constexpr std::uint32_t kParamBytes = 40, kFirstPointer = 0, kSecondPointer = 8;

std::int64_t number(Random& random, unsigned bits) {
  switch (random() % 8) {
    case 0:
      return static_cast<std::int64_t>(random());
    case 1:
      return (std::int64_t{1} << random() % (bits - 1)) - static_cast<std::int64_t>(random() % 2);
    case 2:
      return -(std::int64_t{1} << random() % (bits - 1));
    case 3:
      return bits == 32 ? 0x7fffffff : INT64_MAX;
    default:
      return static_cast<std::int64_t>(random() % 24) - 8;
  }
}

// A random list, and a launch.
class Program {
 public:
  explicit Program(std::uint64_t seed) : random_(seed) {
    launch.params.resize(kParamBytes);
    for (std::uint32_t at = 16; at < kParamBytes; at += 4) {
      const std::int64_t value = number(random_, 32);
      std::memcpy(&launch.params[at], &value, 4);
    }
    if (chance(60)) std::memset(&launch.params[36], launch.params[35] >> 7 ? 0xff : 0, 4);
    for (std::uint32_t* size : {launch.block, launch.grid})
      for (int i = 0; i < 3; ++i) size[i] = 1 + static_cast<std::uint32_t>(random_() % (i == 0 ? 70 : 3));
  }

  void make_plain() {
    for (int i = 0; i < 4; ++i) leaf(chance(50) ? 32 : 64);
    const int count = 2 + static_cast<int>(random_() % 12);
    for (int i = 0; i < count; ++i) operation();
  }

  void make_loops() {
    for (int i = 0; i < 3; ++i) leaf(chance(50) ? 32 : 64);
    const int loops = chance(40) ? 2 : 1;
    for (int i = 1; i <= loops; ++i) loop(i);
    const int count = static_cast<int>(random_() % 4);
    for (int i = 0; i < count; ++i) operation();
  }

  // Addresses made of what there is.
  std::vector<std::uint32_t> addresses() {
    std::vector<std::uint32_t> result;
    const auto all = static_cast<std::uint32_t>(list.size());
    const std::uint32_t pointer = add_new(param, 64, 8, 0, kFirstPointer);
    for (std::uint32_t at = all > 8 ? all - 8 : 0; at < all; ++at) {
      if (list[at].bits == 64) result.push_back(at);
      const std::uint32_t offset = list[at].bits == 64 ? at : add_new(chance(50) ? widen : widen_signed, 64, at, 0, 0);
      result.push_back(add_new(add, 64, pointer, offset, 0));
    }
    return result;
  }

  Expressions list;
  test::Interpreter::Launch launch;

 private:
  bool chance(unsigned percent) { return random_() % 100 < percent; }

  std::uint32_t add_new(ExpressionOp op, unsigned bits, std::uint32_t a, std::uint32_t b, std::int64_t value) {
    list.push_back({op, static_cast<std::uint8_t>(bits), a, b, value});
    return static_cast<std::uint32_t>(list.size() - 1);
  }

  std::uint32_t leaf(unsigned bits) {
    switch (random_() % 8) {
      case 0:
      case 1:
        return add_new(constant, bits, 0, 0,
                       bits == 32 ? static_cast<std::int32_t>(number(random_, 32)) : number(random_, 64));
      case 2:
        if (bits == 64) return add_new(param, 64, 8, 0, chance(50) ? kFirstPointer : kSecondPointer);
        return add_new(param, 32, chance(30) ? 2 : 4, 0, 16 + 4 * static_cast<std::int64_t>(random_() % 4));
      case 3:
        return bits == 64 ? add_new(param, 64, 8, 0, 32)
                          : add_new(param, 32, 1, 0, 16 + static_cast<std::int64_t>(random_() % 16));
      case 4:
        return add_new(up_to, bits, 0, 0, (std::int64_t{1} << random_() % 31) - 1);
      case 5:
        return chance(20) ? add_new(unknown, bits, 0, 0, 0) : add_new(up_to, bits, 0, 0, 31);
      default: {
        const std::uint32_t which = add_new(ExpressionOp::launch, 32, 0, 0, static_cast<std::int64_t>(random_() % 12));
        return bits == 32 ? which : add_new(widen, 64, which, 0, 0);
      }
    }
  }

  // Some expression of so many bits.
  std::uint32_t some(unsigned bits) {
    for (int i = 0; i < 12; ++i) {
      const std::size_t near = chance(70) ? std::min<std::size_t>(list.size(), 5) : list.size();
      const auto at = static_cast<std::uint32_t>(list.size() - 1 - random_() % near);
      if (list[at].bits == bits && list[at].value != kRestOfChoice) return at;
    }
    return leaf(bits);
  }

  std::int64_t relation() { return static_cast<std::int64_t>(random_() % 6) + (chance(50) ? kSignedRelation : 0); }

  std::uint32_t operation() {
    const auto op = static_cast<ExpressionOp>(
        static_cast<unsigned>(add) + random_() % (static_cast<unsigned>(where) - static_cast<unsigned>(add) + 1));
    const bool widens = op == widen || op == widen_signed, halves = op == low || op == high;
    const unsigned bits = widens ? 64 : halves ? 32 : chance(50) ? 32 : 64;
    const unsigned of = widens ? 32 : halves ? 64 : bits;
    if (op == param_at) {  // the one pointer, or the other, or anything
      const std::uint32_t mask = add_new(constant, 32, 0, 0, chance(80) ? 8 : -8);
      const std::uint32_t index = add_new(bit_and, 32, some(32), mask, 0);
      return add_new(param_at, 64, index, 0, chance(80) ? kFirstPointer : kSecondPointer);
    }
    if (op == number_at) {  // in the numbers, or in all there is
      const std::uint32_t bytes = 1u << random_() % 3;
      const std::int64_t from = chance(80) ? 16 : 0;
      const std::uint32_t mask = add_new(constant, 32, 0, 0, chance(80) ? 16 - bytes : 64 - bytes);
      const std::uint32_t index = add_new(bit_and, 32, some(32), mask, 0);
      return add_new(number_at, 32, index, bytes, from);
    }
    const std::uint32_t a = some(of);
    if (operands_of(op) == 1) return add_new(op, bits, a, 0, 0);
    const bool is_shift = op == shift_left || op == shift_right || op == shift_right_signed;
    std::uint32_t b = is_shift ? some(chance(80) ? 32 : 64) : some(of);
    if (is_shift && chance(60)) b = add_new(constant, 32, 0, 0, static_cast<std::int64_t>(random_() % (bits + 3)));
    if (op == bit_and && chance(50)) b = add_new(constant, bits, 0, 0, chance(50) ? 15 : -8);
    const bool leaves_rest = op == remainder || op == remainder_signed;
    const std::int64_t value = op == divide || leaves_rest ? static_cast<std::int64_t>(random_() % 3) + leaves_rest : 0;
    return add_new(op, bits, a, b, op == where ? relation() : value);
  }

  // Some variables that are chosen where the loop begins, by the way on which that is reached.
  void loop(std::int64_t number_of_loop) {
    const std::size_t variables = 1 + random_() % 4, ways = 2 + random_() % 3, entries = ways > 2 && chance(30) ? 2 : 1;
    std::vector<std::vector<std::uint32_t>> from(variables);
    std::vector<unsigned> bits;
    for (std::size_t i = 0; i < variables; ++i) {
      bits.push_back(chance(60) ? 32 : 64);
      for (std::size_t way = 0; way < entries; ++way) from[i].push_back(first(bits[i]));
    }
    std::vector<std::uint32_t> choices;
    for (std::size_t i = 0; i < variables; ++i) choices.push_back(add_new(either, bits[i], 0, 0, number_of_loop));
    for (std::size_t way = entries; way < ways; ++way)
      for (std::size_t i = 0; i < variables; ++i) from[i].push_back(next(choices, i));
    for (std::size_t i = 0; i < variables; ++i) {
      std::uint32_t rest = from[i].back();
      for (std::size_t way = ways - 1; way-- > 1;) rest = add_new(either, bits[i], from[i][way], rest, kRestOfChoice);
      list[choices[i]].a = from[i][0];
      list[choices[i]].b = rest;
    }
  }

  std::uint32_t first(unsigned bits) {
    if (chance(40)) return add_new(constant, bits, 0, 0, static_cast<std::int64_t>(random_() % 9) - 2);
    if (bits == 64 && chance(40)) return add_new(param, 64, 8, 0, kFirstPointer);
    return some(bits);
  }

  std::uint32_t step_by(unsigned bits) {
    return chance(80) ? add_new(constant, bits, 0, 0, static_cast<std::int64_t>(random_() % 13) - 4) : some(bits);
  }

  std::uint32_t next(const std::vector<std::uint32_t>& choices, std::size_t i) {
    const std::uint32_t choice = choices[i];
    const unsigned bits = list[choice].bits;
    const std::uint32_t other = choices[random_() % choices.size()];
    if (chance(10)) return choice;
    if (chance(8)) return first(bits);
    if (chance(8) && list[other].bits == bits) return other;
    if (chance(4)) return add_new(shift_left, bits, choice, leaf(32), 0);
    std::uint32_t value = choice;
    if (chance(25)) value = add_new(where, bits, value, bound(bits), relation());
    value = add_new(add, bits, value, step_by(bits), 0);
    if (chance(15))
      value = add_new(either, bits, value, chance(50) ? first(bits) : add_new(add, bits, choice, step_by(bits), 0), 0);
    if (chance(65)) value = add_new(where, bits, value, bound(bits), chance(30) ? 5 : relation());
    return value;
  }

  std::uint32_t bound(unsigned bits) {
    return chance(65) ? add_new(constant, bits, 0, 0, static_cast<std::int64_t>(random_() % 60) - 6) : some(bits);
  }

  Random random_;
};

struct Sums {
  std::uint64_t bounded = 0, held = 0, independent = 0;
};

bool is_same(const std::optional<std::vector<Reach>>& one, const std::optional<std::vector<Reach>>& other) {
  if (!one || !other) return !one && !other;
  return std::ranges::equal(*one, *other, [](const Reach& a, const Reach& b) {
    return std::tuple(a.first, a.last, a.indexed) == std::tuple(b.first, b.last, b.indexed);
  });
}

// Other bytes than those that a trail has do not change the answer, nor other pointers.
void hold_trail(const AddressExtents& extents, const AddressGroup& group, std::uint32_t focus,
                const LaunchValues& values, std::uint64_t seed, Sums& sums) {
  Trail trail;
  const auto reached = reach(extents, group, focus, values, &trail);
  std::vector<std::uint8_t> params(values.params.begin(), values.params.end());
  std::vector<std::uint32_t> pointers;
  Random random(seed);
  for (std::uint32_t at = 0; at < params.size(); ++at)
    if (!trail.rests_on(at, 1)) params[at] = static_cast<std::uint8_t>(random()), ++sums.independent;
  for (std::uint32_t at = 0; at + 8 <= params.size(); at += 8)
    if (trail.rests_on(at, 8) ? std::ranges::count(values.pointers, at) != 0 : random() % 2 == 0)
      pointers.push_back(at);
  const LaunchValues others{params, pointers, values.grid, values.block};
  EXPECT_TRUE(is_same(reach(extents, group, focus, others), reached)) << "seed " << seed << ", pointer " << focus;
}

// Each use, with what it is from time to time, for both of the pointers that it may be relative to.
void hold(Program& program, std::uint64_t seed, Sums& sums) {
  AddressExtents extents;
  std::vector<std::uint32_t> uses = program.addresses();
  extents.expressions = program.list;
  for (std::uint32_t at = 0; at < program.list.size(); ++at)
    if (program.list[at].op == either && program.list[at].value > 0) extents.counters.push_back(at);
  AddressGroup group;
  group.at = {kFirstPointer, kSecondPointer};
  group.complete = true;
  extents.groups.push_back(group);
  ASSERT_TRUE(is_well_formed(extents)) << seed;
  const std::uint32_t pointers[] = {kFirstPointer, kSecondPointer};
  LaunchValues values{program.launch.params, pointers, {}, {}};
  for (int i = 0; i < 3; ++i) values.grid[i] = program.launch.grid[i], values.block[i] = program.launch.block[i];
  for (const std::uint32_t use : uses) {
    for (const std::uint32_t focus : pointers) {
      group.uses = {{use, 1}};
      hold_trail(extents, group, focus, values, seed, sums);
      const auto reached = reach(extents, group, focus, values);
      if (!reached || std::ranges::any_of(*reached, [](const Reach& each) { return each.indexed; })) continue;
      ++sums.bounded;
      // It is relative to the pointer if it goes where that goes.
      test::Interpreter::Launch here = program.launch, there = program.launch;
      const std::uint64_t base = 0x7f1234567000, moved = 0x7e98765aa000, other = 0x7ccc00001000;
      for (auto& [launch, at] : {std::pair{&here, base}, std::pair{&there, moved}}) {
        std::memcpy(&launch->params[focus], &at, 8);
        std::memcpy(&launch->params[focus ^ kSecondPointer], &other, 8);
      }
      test::Interpreter one(program.list, here, seed), two(program.list, there, seed);
      const int times = one.has_loops() ? 160 : 6;
      for (int i = 0; i < times; ++i) {
        if (one.has_loops()) one.step(), two.step();
        const auto address = one.value(use), same = two.value(use);
        if (!address || !same || *address - base != *same - moved) continue;
        ++sums.held;
        const auto offset = static_cast<std::int64_t>(*address - base);
        const bool is_inside = std::ranges::any_of(
            *reached, [&](const Reach& each) { return each.first <= offset && offset < each.last; });
        std::string text;
        if (!is_inside)
          for (std::size_t at = 0; at < program.list.size(); ++at) {
            const Expression& each = program.list[at];
            text += std::to_string(at) + ": " + std::string(kExpressionNames[static_cast<unsigned>(each.op)]) + '.' +
                    std::to_string(each.bits) + ' ' + std::to_string(each.a) + ' ' + std::to_string(each.b) + " [" +
                    std::to_string(each.value) + "]\n";
          }
        ASSERT_TRUE(is_inside) << "seed " << seed << ", use " << use << ", pointer " << focus << ": " << offset
                               << " is not in " << reached->size() << " ranges ["
                               << (reached->empty() ? 0 : (*reached)[0].first) << ", "
                               << (reached->empty() ? 0 : (*reached)[0].last) << ")\n"
                               << text;
      }
    }
  }
}

TEST(Evaluate, WhatIsComputedIsWithinItsRange) {
  Sums sums;
  for (std::uint64_t seed = 0; seed < 6000 && !::testing::Test::HasFailure(); ++seed) {
    Program program(seed);
    program.make_plain();
    hold(program, seed, sums);
  }
  EXPECT_GT(sums.bounded, 30000u);
  EXPECT_GT(sums.independent, 1000000u);
  EXPECT_GT(sums.held, 90000u);
}

TEST(Evaluate, WhatLoopsComputeIsWithinItsRange) {
  Sums sums;
  for (std::uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    Program program(seed);
    program.make_loops();
    hold(program, seed, sums);
  }
  EXPECT_GT(sums.bounded, 1200u);
  EXPECT_GT(sums.held, 40000u);
}

// Of a list with one use, by a pointer in the first word.
std::string bounds(Expressions list, std::uint32_t use,
                   std::vector<std::uint8_t> params = std::vector<std::uint8_t>(32)) {
  AddressExtents extents;
  extents.expressions = std::move(list);
  for (std::uint32_t at = 0; at < extents.expressions.size(); ++at)
    if (extents.expressions[at].op == either && extents.expressions[at].value > 0) extents.counters.push_back(at);
  extents.groups.push_back({{0}, true, false, {{use, 4}}, true, {}});
  if (!is_well_formed(extents)) return "damaged";
  const std::uint32_t pointers[] = {0};
  const auto reached = reach(extents, extents.groups[0], 0, {params, pointers, {1, 1, 1}, {32, 1, 1}});
  if (!reached) return "none";
  std::string text;
  for (const Reach& each : *reached) text += '[' + std::to_string(each.first) + ", " + std::to_string(each.last) + ')';
  return text;
}

// for (i = 0; i < 100; ++i, q += 4) { if (++c == 8) c = 0; }: as two ways to the same beginning, or as one choice.
TEST(Evaluate, WhatBeginsAnewInALoopDoesNotBoundIt) {
  const Expressions two_ways{{param, 64, 8, 0, 0},    {constant, 32, 0, 0, 0}, {constant, 32, 0, 0, 1},
                             {constant, 32, 0, 0, 8}, {constant, 64, 0, 0, 4}, {either, 32, 1, 8, 1},
                             {add, 32, 5, 2, 0},      {where, 32, 6, 3, 0},    {either, 32, 7, 1, kRestOfChoice},
                             {either, 64, 0, 11, 1},  {add, 64, 9, 4, 0},      {either, 64, 10, 10, kRestOfChoice}};
  EXPECT_EQ(bounds(two_ways, 9), "none");
  Expressions one_choice = two_ways;
  one_choice[5] = {either, 32, 1, 8, 1};
  one_choice[8] = {either, 32, 7, 1, 0};
  one_choice[9] = {either, 64, 0, 10, 1};
  EXPECT_EQ(bounds(one_choice, 9), "none");
  Expressions plain = one_choice;
  plain[5] = {either, 32, 1, 7, 1};
  EXPECT_EQ(bounds(plain, 9), "[0, 32)") << "with nothing that begins anew there is a bound";
}

TEST(Evaluate, ADifferenceOfPointersLeadsToTheOther) {
  Expressions list{
      {param, 64, 8, 0, 0}, {unknown, 64, 0, 0, 0}, {constant, 64, 0, 0, 0}, {where, 64, 1, 2, 5}, {add, 64, 0, 3, 0}};
  EXPECT_EQ(bounds(list, 4), "none");
}

// Bytes 0 and 8 are pointers, 16 on is none.
TEST(Evaluate, AnIndexIntoTheParametersLeadsToSomeOfThem) {
  const auto of = [](std::uint32_t blocks, std::int64_t offset, std::uint32_t focus) -> std::string {
    AddressExtents extents;
    extents.expressions = {{ExpressionOp::launch, 32, 0, 0, 3},
                           {constant, 32, 0, 0, 3},
                           {shift_left, 32, 0, 1, 0},
                           {param_at, 64, 2, 0, offset}};
    AddressGroup group;
    group.at = {0, 8, 16};
    group.uses = {{3, 4}};
    group.complete = true;
    extents.groups.push_back(group);
    const std::vector<std::uint8_t> params(24, 1);
    const std::uint32_t pointers[] = {0, 8};
    const auto reached = reach(extents, group, focus, {params, pointers, {blocks, 1, 1}, {1, 1, 1}});
    return !reached ? "?" : reached->empty() ? "never" : "taken";
  };
  EXPECT_EQ(of(1, 0, 0), "taken");
  EXPECT_EQ(of(1, 0, 8), "never");
  EXPECT_EQ(of(2, 0, 8), "taken");
  EXPECT_EQ(of(1, 8, 0), "never");
  EXPECT_EQ(of(3, 0, 0), "?") << "what is no pointer may be any number";
  EXPECT_EQ(of(4, 0, 0), "?") << "beyond them";
  EXPECT_EQ(of(1, 4, 0), "?") << "halves of two";
}

// Bytes 0 to 7 are a pointer, from 8 on there are bytes that say 3, 1, 2 and so on.
TEST(Evaluate, AnIndexIntoTheParametersLeadsToNumbers) {
  struct Answer {
    std::string bytes;
    std::set<NumberAt> taken;
  };
  const auto of = [](std::uint32_t blocks, std::uint32_t bytes, std::int64_t offset) -> Answer {
    AddressExtents extents;
    extents.expressions = {{ExpressionOp::launch, 32, 0, 0, 3},
                           {constant, 32, 0, 0, bytes},
                           {multiply, 32, 0, 1, 0},
                           {number_at, 32, 2, bytes, offset},
                           {widen, 64, 3, 0, 0},
                           {param, 64, 8, 0, 0},
                           {add, 64, 4, 5, 0}};
    AddressGroup group;
    group.at = {0};
    group.uses = {{6, 1}};
    group.complete = true;
    extents.groups.push_back(group);
    EXPECT_TRUE(is_well_formed(extents));
    std::vector<std::uint8_t> params(24, 1);
    const std::uint8_t numbers[] = {3, 1, 2, 0, 9, 0, 0, 0};
    std::copy(std::begin(numbers), std::end(numbers), params.begin() + 8);
    const std::uint32_t pointers[] = {0};
    Answer answer;
    Trail trail;
    const auto reached = reach(extents, group, 0, {params, pointers, {blocks, 1, 1}, {1, 1, 1}}, &trail);
    answer.taken = trail.taken();
    answer.bytes = reached ? std::to_string((*reached)[0].first) + ".." + std::to_string((*reached)[0].last) : "?";
    return answer;
  };
  using Taken = std::set<NumberAt>;
  EXPECT_EQ(of(1, 1, 8).bytes, "3..4");
  EXPECT_EQ(of(1, 1, 8).taken, (Taken{{8, 1}}));
  EXPECT_EQ(of(3, 1, 8).bytes, "1..4");
  EXPECT_EQ(of(3, 1, 8).taken, (Taken{{8, 1}, {9, 1}, {10, 1}}));
  EXPECT_EQ(of(1, 2, 8).bytes, "259..260");
  EXPECT_EQ(of(1, 4, 12).bytes, "9..10");
  EXPECT_EQ(of(2, 4, 12).taken, (Taken{{12, 4}, {16, 4}}));
  EXPECT_EQ(of(1, 2, 9).bytes, "0..65536") << "no launch loads it there";
  EXPECT_EQ(of(1, 2, 9).taken, Taken{});
  EXPECT_EQ(of(1, 1, 7).bytes, "0..256") << "a part of a pointer";
  EXPECT_EQ(of(99, 1, 8).bytes, "0..256") << "beyond them";
  EXPECT_EQ(of(99, 1, 8).taken, Taken{});
  EXPECT_EQ(of(99, 4, 8).bytes, "0..4294967296");
}

TEST(Evaluate, DamagedListsAreNotWellFormed) {
  const Expressions list{{param, 64, 8, 0, 0}, {up_to, 32, 0, 0, 7}, {widen, 64, 1, 0, 0},
                         {where, 64, 2, 2, 9}, {add, 64, 0, 3, 0},   {ExpressionOp::launch, 32, 0, 0, 11}};
  EXPECT_EQ(bounds(list, 4), "[0, 11)");
  const auto with = [&](std::size_t at, Expression other, std::uint32_t use = 4) {
    Expressions damaged = list;
    damaged[at] = other;
    return bounds(damaged, use);
  };
  EXPECT_EQ(with(1, {up_to, 32, 0, 0, -5}), "damaged");
  EXPECT_EQ(with(1, {up_to, 32, 0, 0, std::int64_t{1} << 32}), "damaged");
  EXPECT_EQ(with(1, {up_to, 64, 0, 0, 7}), "damaged") << "widens 64 bits";
  EXPECT_EQ(with(1, {up_to, 16, 0, 0, 7}), "damaged");
  EXPECT_EQ(with(2, {widen, 32, 1, 0, 0}), "damaged");
  EXPECT_EQ(with(3, {where, 64, 2, 2, 6}), "damaged");
  EXPECT_EQ(with(3, {where, 64, 2, 2, -1}), "damaged");
  EXPECT_EQ(with(3, {where, 64, 2, 2, 256}), "damaged");
  EXPECT_EQ(with(3, {where, 64, 2, 4, 9}), "damaged") << "leads back";
  EXPECT_EQ(with(4, {add, 64, 0, 99, 0}), "damaged");
  EXPECT_EQ(with(4, {add, 64, 0, 1, 0}), "damaged") << "32 bits to 64";
  EXPECT_EQ(with(0, {param, 64, 9, 0, 0}), "damaged");
  EXPECT_EQ(with(0, {param, 64, 8, 0, -8}), "none");
  EXPECT_EQ(with(0, {param, 64, 8, 0, 28}), "none");
  EXPECT_EQ(with(5, {ExpressionOp::launch, 32, 0, 0, 12}), "damaged");
  EXPECT_EQ(with(5, {ExpressionOp::launch, 32, 0, 0, 256}), "damaged");
  EXPECT_EQ(with(5, {either, 32, 5, 1, -2}), "damaged");
  EXPECT_EQ(with(5, {divide, 32, 1, 1, -1}), "damaged");
  EXPECT_EQ(with(5, {remainder, 32, 1, 1, 0}), "damaged");
  EXPECT_EQ(with(5, {remainder_signed, 32, 1, 1, INT64_MAX}), "damaged");
  EXPECT_EQ(with(3, {param_at, 32, 1, 0, 0}), "damaged");
  EXPECT_EQ(with(3, {param_at, 64, 2, 0, 0}), "damaged") << "an index of 64 bits";
  EXPECT_EQ(with(3, {param_at, 64, 1, 0, -8}), "damaged");
  EXPECT_EQ(with(3, {param_at, 64, 1, 0, INT64_MAX}), "damaged");
  EXPECT_EQ(with(3, {number_at, 32, 1, 3, 0}), "damaged") << "three bytes";
  EXPECT_EQ(with(3, {number_at, 64, 1, 4, 0}), "damaged");
  EXPECT_EQ(with(3, {number_at, 32, 2, 4, 0}), "damaged") << "an index of 64 bits";
  EXPECT_EQ(with(3, {number_at, 32, 1, 4, -8}), "damaged");
  EXPECT_EQ(with(4, {add, 64, 0, 3, 0}, 1), "damaged") << "an address has 64 bits";
  EXPECT_EQ(with(4, {add, 64, 0, 3, 0}, 6), "damaged");
}

// Very many choices, one after the other; and choices of nothing but themselves.
TEST(Evaluate, HostileListsComeToAnEnd) {
  Expressions many{{param, 64, 8, 0, 0}, {constant, 64, 0, 0, 4}, {either, 64, 0, 0, 1}};
  for (std::uint32_t i = 0; i < 60; ++i) {
    const auto last = static_cast<std::uint32_t>(many.size() - 1);
    many.push_back({add, 64, last, 1, 0});
    many.push_back({either, 64, last, last + 1, 0});
  }
  many[2].b = static_cast<std::uint32_t>(many.size() - 1);
  EXPECT_EQ(bounds(many, many[2].b), "none");
  EXPECT_EQ(bounds({{either, 64, 0, 0, 1}}, 0), "");
  EXPECT_EQ(bounds({{either, 64, 1, 1, kRestOfChoice}, {either, 64, 0, 0, kRestOfChoice}, {either, 64, 0, 1, 3}}, 2),
            "");
}

}  // namespace
}  // namespace nimble::analyzer
