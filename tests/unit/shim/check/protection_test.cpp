#include "shim/check/protection.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

using enum Protection;

struct Case {
  const char* what;
  std::vector<ProtectedPiece> pieces;
  std::vector<ProtectionChange> changes;
};

void expect(const Case& one) {
  SCOPED_TRACE(one.what);
  const std::vector<ProtectionChange> found = protection_changes(one.pieces);
  ASSERT_EQ(found.size(), one.changes.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].address, one.changes[i].address);
    EXPECT_EQ(found[i].bytes, one.changes[i].bytes);
    EXPECT_EQ(found[i].to, one.changes[i].to);
  }
}

TEST(Protection, ChangesWhatDiffersInFewCalls) {
  expect({"nothing", {}, {}});
  expect({"as it is", {{10, 2, 0, open, open}, {12, 2, 0, closed, closed}}, {}});
  expect({"neighbours", {{10, 2, 0, open, closed}, {12, 4, 0, read_only, closed}}, {{10, 6, closed}}});
  expect({"two kinds",
          {{10, 2, 0, open, closed}, {12, 4, 0, open, read_only}, {16, 2, 0, open, closed}},
          {{10, 2, closed}, {12, 4, read_only}, {16, 2, closed}}});
  expect({"a gap", {{10, 2, 0, open, closed}, {14, 2, 0, open, closed}}, {{10, 2, closed}, {14, 2, closed}}});
  expect({"another reservation",
          {{10, 2, 10, open, closed}, {12, 2, 12, open, closed}},
          {{10, 2, closed}, {12, 2, closed}}});
}

TEST(Protection, WhatIsAsWantedIsLeftOutAtTheEndsOnly) {
  expect({"in the midst",
          {{10, 2, 0, open, closed}, {12, 2, 0, closed, closed}, {14, 2, 0, open, closed}},
          {{10, 6, closed}}});
  expect({"at the ends",
          {{10, 2, 0, closed, closed}, {12, 2, 0, open, closed}, {14, 2, 0, closed, closed}},
          {{12, 2, closed}}});
}

}  // namespace
}  // namespace nimble::shim
