// Where pointers lie among the bytes of a launch's parameters, against a search of all of them.
#include "analyzer/access/kernel_params.h"

#include <gtest/gtest.h>

#include <random>

#include "analyzer/memory/objects.h"

namespace nimble::analyzer {
namespace {

TEST(KernelParams, TheFirstPointerThatSharesAByteIsFound) {
  std::mt19937 random(3);
  const Trace trace;
  const TraceCall call;
  const ObjectTable table(trace);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<PointerWord> pointers;
    for (std::uint32_t at = random() % 24; at < 160; at += 4 + random() % 40) {
      PointerWord& pointer = pointers.emplace_back();
      pointer.at = at;
    }
    const OpQuestion op{trace, call, pointers, table, {}};
    const std::uint32_t at = random() % 176, bytes = 1 + random() % 12;
    const PointerWord* expected = nullptr;
    for (auto each = pointers.rbegin(); each != pointers.rend(); ++each)
      if (each->at < at + bytes && at < each->at + 8) expected = &*each;
    EXPECT_EQ(pointer_that_meets(op, at, bytes), expected) << at << " " << bytes;
    found += expected != nullptr ? 1 : 0;
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace nimble::analyzer
