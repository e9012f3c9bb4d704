#include "shim/graphs/workspaces.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

constexpr std::uint64_t kCapture = 7, kOther = 8, kWorkspace = 0x1000, kBytes = 512;

TEST(Workspaces, OneThatIsSetIsClaimedOnce) {
  Workspaces spaces;
  EXPECT_FALSE(spaces.claim(kCapture, kWorkspace, kBytes)) << "there is none";
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, false);
  EXPECT_FALSE(spaces.claim(kOther, kWorkspace, kBytes)) << "of another capture";
  EXPECT_FALSE(spaces.claim(kCapture, 0x2000, kBytes)) << "of another workspace";
  EXPECT_FALSE(spaces.claim(kCapture, kWorkspace, kBytes + 1)) << "too small";
  EXPECT_EQ(spaces.claim(kCapture, kWorkspace, kBytes), 0xa000);
  EXPECT_FALSE(spaces.claim(kCapture, kWorkspace, kBytes)) << "another product may still work there";
}

TEST(Workspaces, OneThatIsForOneProductIsNobodyElses) {
  Workspaces spaces;
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, true);
  EXPECT_FALSE(spaces.claim(kCapture, kWorkspace, kBytes));
}

TEST(Workspaces, EachEndsOnce) {
  Workspaces spaces;
  spaces.began(kCapture, kWorkspace, 0xa000, kBytes, false);
  spaces.began(kCapture, 0x2000, 0xb000, kBytes, true);
  spaces.began(kOther, kWorkspace, 0xc000, kBytes, true);
  EXPECT_EQ(spaces.end_one(kCapture, kWorkspace), 0xa000);
  EXPECT_FALSE(spaces.end_one(kCapture, kWorkspace));
  spaces.began(kCapture, kWorkspace, 0xd000, kBytes, true);
  EXPECT_EQ(spaces.end(kCapture), (std::vector<std::uint64_t>{0xd000, 0xb000}));
  EXPECT_TRUE(spaces.end(kCapture).empty());
  EXPECT_EQ(spaces.end(kOther), std::vector<std::uint64_t>{0xc000});
}

// What a capture may have depends on what it asks for, in that order, alone.
TEST(Workspaces, AreBoundedForEachCapture) {
  constexpr std::uint64_t kLarge = kMostForWorkspaces / 4 + 1;
  Workspaces spaces;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(spaces.may_have(kCapture, kLarge));
    spaces.began(kCapture, kWorkspace, 0xa000, kLarge, true);
    spaces.end_one(kCapture, kWorkspace);
  }
  EXPECT_FALSE(spaces.may_have(kCapture, kLarge));
  EXPECT_FALSE(spaces.may_have(kCapture, kBytes)) << "none is left out and a later one served";
  EXPECT_TRUE(spaces.may_have(kOther, kMostForWorkspaces));
  EXPECT_FALSE(spaces.may_have(kOther, kMostForWorkspaces + 1));
  spaces.end(kCapture);
  EXPECT_TRUE(spaces.may_have(kCapture, kBytes));
  spaces.full(kCapture);
  EXPECT_FALSE(spaces.may_have(kCapture, kBytes)) << "the driver has had none";
}

}  // namespace
}  // namespace nimble::shim
