#include "shim/rewrite/graph/touched_memory.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

Call memory(std::uint64_t address, std::uint64_t size = 0) {
  Call call;
  call.memory.address = address;
  call.memory.size = size;
  return call;
}

class TouchedMemoryTest : public testing::Test {
 protected:
  void SetUp() override { touched_.name({{0x3000, 0x100}, {0x1000, 0x100}, {0x2000, 0x100}, {0x4000, 0}}); }
  TouchedMemory touched_;
};

TEST_F(TouchedMemoryTest, WhatHoldsAByteOfThemTakesThemAlong) {
  EXPECT_FALSE(touched_.release(memory(0x0f00, 0x100)));
  EXPECT_FALSE(touched_.release(memory(0x1100, 0xf00)));
  EXPECT_FALSE(touched_.release(memory(0x5000)));
  EXPECT_TRUE(touched_.release(memory(0x1000)));
  EXPECT_TRUE(touched_.release(memory(0x20ff, 0x10))) << "the last byte, by an unmapping";
  EXPECT_TRUE(touched_.release(memory(0x2f00, 0x101)));
  EXPECT_TRUE(touched_.release(memory(0x4000))) << "of a size that is not known";
}

TEST_F(TouchedMemoryTest, TwoThatWentMustNotBecomeOne) {
  EXPECT_FALSE(touched_.brings_together(memory(0, 0x10000))) << "nothing went";
  touched_.release(memory(0x1000));
  EXPECT_FALSE(touched_.brings_together(memory(0, 0x10000))) << "what is there cannot be a part of it";
  touched_.release(memory(0x2000));
  EXPECT_TRUE(touched_.brings_together(memory(0, 0x10000)));
  EXPECT_TRUE(touched_.brings_together(memory(0x10ff, 0xf02)));
  EXPECT_FALSE(touched_.brings_together(memory(0x1100, 0xf00)));
  EXPECT_FALSE(touched_.brings_together(memory(0x1000, 0x100)));
  EXPECT_FALSE(touched_.brings_together(memory(0x2000, 0x10000)));
}

TEST_F(TouchedMemoryTest, NorMayOneBecomeWhatMayLieElsewhereToo) {
  touched_.release(memory(0x1000));
  for (const MemoryKind kind :
       {MemoryKind::mapped, MemoryKind::external, MemoryKind::managed, MemoryKind::registered}) {
    Call call = memory(0x1000, 0x100);
    call.memory.kind = kind;
    EXPECT_TRUE(touched_.brings_together(call));
    call.memory.address = 0x2000;
    EXPECT_FALSE(touched_.brings_together(call)) << "which is still there";
  }
  Call call = memory(0x1000, 0x100);
  call.memory.kind = MemoryKind::stream_ordered;
  EXPECT_FALSE(touched_.brings_together(call));
}

TEST_F(TouchedMemoryTest, WhatCameInTheirPlaceMayGoAgain) {
  touched_.release(memory(0x1000));
  EXPECT_TRUE(touched_.release(memory(0x1000, 0x500)));
  touched_.release(memory(0x2000));
  EXPECT_TRUE(touched_.brings_together(memory(0x1000, 0x1001)));
}

TEST_F(TouchedMemoryTest, WhatLedNowhereMustGoOnDoingSo) {
  touched_.name_stray({0x7f0000200000, 0x10000}, {0x10000, 0x7f0000200000});
  EXPECT_TRUE(touched_.leads_to(memory(0x7f0000200000, 1)));
  EXPECT_TRUE(touched_.leads_to(memory(0x7f00001fff00, 0x200)));
  EXPECT_TRUE(touched_.leads_to(memory(0x7f00002000ff, 0x200))) << "where it may be counted from one";
  EXPECT_TRUE(touched_.leads_to(memory(0x7f00001ff000, 0x1000))) << "where it ends";
  EXPECT_TRUE(touched_.leads_to(memory(0x7f0000200000))) << "of a size that is not known";
  EXPECT_TRUE(touched_.leads_to(memory(0x8000, 0x10000)));
  EXPECT_FALSE(touched_.leads_to(memory(0x7f0000200100, 0x200)));
  EXPECT_FALSE(touched_.leads_to(memory(0x7f00001ff000, 0xfff)));
  EXPECT_FALSE(touched_.leads_to(memory(0x20000, 0x7f0000000000)));
  EXPECT_FALSE(touched_.leads_to(memory(0, 0x100)));
}

// A pair of numbers, where memory of the device's comes for the first time; but not what somebody may have chosen.
TEST_F(TouchedMemoryTest, NewMemoryWhereNoneWasIsNotMeant) {
  touched_.name_stray({0x400000002, 0x302000000}, {0x302000000});
  Call call = memory(0x302000000, 0x200000000);
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::stream_ordered}) {
    call.memory.kind = kind;
    EXPECT_TRUE(touched_.leads_to(call));
    call.memory.address += 0x100000;
    EXPECT_FALSE(touched_.leads_to(call));
    call.memory.address -= 0x100000;
  }
  call.memory.address += 0x100000;
  for (const MemoryKind kind : {MemoryKind::pinned, MemoryKind::registered, MemoryKind::managed, MemoryKind::mapped,
                                MemoryKind::global, MemoryKind::external}) {
    call.memory.kind = kind;
    EXPECT_TRUE(touched_.leads_to(call));
  }
}

TEST_F(TouchedMemoryTest, NothingIsNamed) {
  touched_.name({});
  EXPECT_FALSE(touched_.release(memory(0, ~std::uint64_t{0})));
  EXPECT_FALSE(touched_.brings_together(memory(0, ~std::uint64_t{0})));
  EXPECT_FALSE(touched_.leads_to(memory(0, ~std::uint64_t{0})));
}

}  // namespace
}  // namespace nimble::shim
