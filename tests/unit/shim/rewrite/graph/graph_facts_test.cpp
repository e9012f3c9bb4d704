#include "shim/rewrite/graph/graph_facts.h"

#include <gtest/gtest.h>

#include <string>

namespace nimble::shim {
namespace {

GraphSchedule::Written written(std::uint64_t address, std::uint64_t bytes, std::string by) {
  GraphSchedule::Written result;
  result.range = {address, bytes};
  result.by = std::move(by);
  return result;
}

TEST(GraphFacts, WhatItWritesToIsHeldAgainstRanges) {
  GraphFacts facts;
  std::string what_else;
  EXPECT_FALSE(facts.writes_only({{0x1000, 64}}, what_else));
  EXPECT_EQ(what_else, "unknown memory");
  facts.writes(std::vector{written(0x1000, 16, "add"), written(0x1030, 16, "mul")});
  what_else.clear();
  EXPECT_TRUE(facts.writes_only({{0x1000, 64}}, what_else));
  EXPECT_TRUE(what_else.empty());
  EXPECT_FALSE(facts.writes_only({{0x1000, 63}}, what_else)) << "its last byte is outside";
  EXPECT_EQ(what_else, "16 bytes at 0x1030, by mul");
  facts.writes(std::vector{GraphSchedule::Written{{0x1000, 16}, "tell", true}});
  EXPECT_FALSE(facts.writes_only({{0x1000, 64}}, what_else)) << "others may have seen it";
  facts.writes(std::nullopt);
  EXPECT_FALSE(facts.writes_only({{0x1000, 64}}, what_else));
}

TEST(GraphFacts, NoMoreThanAFewOthersAreNamed) {
  GraphFacts facts;
  std::vector<GraphSchedule::Written> all;
  for (std::uint64_t i = 0; i < 6; ++i) all.push_back(written(0x1000 * (i + 1), 8, "add"));
  facts.writes(std::move(all));
  std::string what_else;
  EXPECT_FALSE(facts.writes_only({}, what_else));
  EXPECT_TRUE(what_else.ends_with("; and 2 more")) << what_else;
}

TEST(GraphFacts, CodeThatGoesMayBeOfItsKernels) {
  const ImageInfo one, other;
  GraphFacts facts;
  facts.describe({1, 1, {&one}, {}, {}, {}});
  EXPECT_FALSE(facts.code_goes(&other));
  EXPECT_TRUE(facts.code_goes(&one));
  EXPECT_TRUE(facts.code_goes(nullptr)) << "unknown which";
}

TEST(GraphFacts, MemoryThatWentMayComeTogether) {
  GraphFacts facts;
  facts.describe({2, 2, {}, {{0x1000, 16}, {0x1010, 16}}, {}, {}});
  Call call;
  call.kind = CallKind::alloc;
  call.memory.kind = MemoryKind::device;
  call.memory.address = 0x1000;
  call.memory.size = 32;
  EXPECT_EQ(facts.memory_comes(call), nullptr) << "both are there";
  facts.any_memory_goes();
  EXPECT_NE(facts.memory_comes(call), nullptr);
  call.memory.size = 16;
  EXPECT_EQ(facts.memory_comes(call), nullptr) << "one alone";
}

}  // namespace
}  // namespace nimble::shim
