#include "shim/rewrite/pool/workspace_table.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

constexpr std::uint64_t kCapture = 7, kOther = 8, kWorkspace = 0x1000, kBytes = 512;
constexpr std::size_t kNodes = 3;

TEST(WorkspaceTable, OneThatIsSetIsGivenToOneProduct) {
  WorkspaceTable spaces;
  EXPECT_FALSE(spaces.given(kCapture, kWorkspace, kBytes, kNodes, false)) << "there is none";
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, kNodes, false);
  EXPECT_FALSE(spaces.given(kOther, kWorkspace, kBytes, kNodes, true)) << "of another capture";
  EXPECT_FALSE(spaces.given(kCapture, 0x2000, kBytes, kNodes, true)) << "of another workspace";
  EXPECT_FALSE(spaces.given(kCapture, kWorkspace, kBytes + 1, kNodes, true)) << "too small";
  EXPECT_FALSE(spaces.given(kCapture, kWorkspace, kBytes, kNodes + 1, true)) << "something may work there";
  EXPECT_EQ(spaces.given(kCapture, kWorkspace, kBytes, kNodes, false), 0xa000)
      << "it is set again, and nothing was done";
  EXPECT_EQ(spaces.given(kCapture, kWorkspace, kBytes, kNodes, true), 0xa000);
  EXPECT_FALSE(spaces.given(kCapture, kWorkspace, kBytes, kNodes, true)) << "another product is about to work there";
  EXPECT_FALSE(spaces.given(kCapture, kWorkspace, kBytes, kNodes, false));
}

TEST(WorkspaceTable, OneForOneProductIsNotShared) {
  WorkspaceTable spaces;
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, kNodes, true);
  EXPECT_FALSE(spaces.given(kCapture, kWorkspace, kBytes, kNodes, true));
}

// A product that is given memory for itself says nothing of what the handle works in from then on.
TEST(WorkspaceTable, WhatAHandleHasStaysItsUntilItGetsAnother) {
  WorkspaceTable spaces;
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, kNodes, false);
  EXPECT_FALSE(spaces.end_one(kCapture, kWorkspace, true));
  spaces.began(kCapture, kWorkspace, 0xb000, kBytes, kNodes + 1, true);
  EXPECT_EQ(spaces.end_one(kCapture, kWorkspace, true), 0xb000);
  EXPECT_EQ(spaces.end_one(kCapture, kWorkspace, false), 0xa000);
}

TEST(WorkspaceTable, EachEndsOnce) {
  WorkspaceTable spaces;
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, kNodes, true);
  spaces.began(kCapture, 0x2000, 0xb000, kBytes, kNodes, true);
  spaces.began(kOther, kWorkspace, 0xc000, kBytes, kNodes, true);
  EXPECT_EQ(spaces.end_one(kCapture, kWorkspace, true), 0xa000);
  EXPECT_FALSE(spaces.end_one(kCapture, kWorkspace, true));
  spaces.began(kCapture, kWorkspace, 0xd000, kBytes, kNodes, true);
  EXPECT_EQ(spaces.end(kCapture), (std::vector<std::uint64_t>{0xd000, 0xb000}));
  EXPECT_TRUE(spaces.end(kCapture).empty());
  EXPECT_EQ(spaces.end(kOther), std::vector<std::uint64_t>{0xc000});
}

TEST(WorkspaceTable, AreBoundedForEachCapture) {
  constexpr std::uint64_t kFree = WorkspaceTable::kPartOfWhatIsFree * 3 * kBytes;
  WorkspaceTable spaces;
  EXPECT_FALSE(spaces.left(kCapture));
  for (const std::uint64_t capture : {kCapture, kOther}) spaces.bound(capture, kFree);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(spaces.left(kCapture), (3 - i) * kBytes);
    ASSERT_TRUE(spaces.may_have(kCapture, kBytes));
    spaces.began(kCapture, kWorkspace, 0xa000, kBytes, kNodes, true);
    spaces.end_one(kCapture, kWorkspace, true);
  }
  EXPECT_FALSE(spaces.may_have(kCapture, 1));
  EXPECT_TRUE(spaces.may_have(kOther, 3 * kBytes));
  EXPECT_FALSE(spaces.may_have(kOther, 3 * kBytes + 1));
  EXPECT_FALSE(spaces.may_have(kOther, kBytes)) << "none is left out and a later one served";
  spaces.end(kCapture);
  EXPECT_FALSE(spaces.left(kCapture));
  spaces.bound(kCapture, kFree);
  spaces.full(kCapture);
  EXPECT_FALSE(spaces.may_have(kCapture, kBytes)) << "the driver has had none";
}

}  // namespace
}  // namespace nimble::shim
