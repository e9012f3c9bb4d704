// Where kernels put pointers, by what later kernels reach over them.
#include "analyzer/pointers/kernel_flow.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/analyzer/pointers/pointers_in_memory.h"

namespace nimble::analyzer {
namespace {

using namespace test;

TEST(KernelFlow, CodeForAnotherArchitectureTellsWhatIsStored) {
  const auto reached = [](const std::string& proof, bool watched = true, int image = 0) {
    const auto watch = [&](Program& p) {
      if (watched) p.looked({kTable});
    };
    const auto step = [&](Program& p) {
      p.text.set(kA, kSize);
      p.text.set(kB, kSize);
      p.batched(proof, kB, kA, image);
      p.by_class(kA, 0);
    };
    return repeated(step, watch).text(3);
  };
  const std::string code = R"(,"code":"00000000000000cd")", both = R"(,"proven":[[[0],"r"],[[8],"w"]])",
                    one = R"(,"proven":[[[8],"w"]])", same = R"(,"same_code":true)";
  EXPECT_EQ(reached(code), "A:rw B:rw") << "a class by value: it may store what is in it";
  EXPECT_EQ(reached(both + code), "A:rw");
  EXPECT_EQ(reached(both + R"(,"stored":[8])" + code), "A:rw");
  EXPECT_EQ(reached(both + R"(,"stored":[0])" + code), "A:rw B:rw");
  EXPECT_EQ(reached(one + code), "A:rw B:rw") << "of this pointer it says nothing, and other code ran";
  EXPECT_EQ(reached(both), "A:rw B:rw") << "other code would go unnoticed";
  EXPECT_EQ(reached(both + code, false), "A:rw B:rw") << "code is not compared unless something was watched";
  EXPECT_EQ(reached(both + code, true, 1).substr(0, 1), "?") << "what ran reaches variables";
  // Where it is the code that ran it is proof.
  EXPECT_EQ(reached(both + same, false), "A:rw");
  EXPECT_EQ(reached(one + same, false), "A:rw");
  // But for what holds in some launches only.
  const std::string some = R"(,"proven_by_launch":[[[0],"r"],[[8],"w"]],"extents":{"expressions":[["const",32,0,0,1]],)"
                           R"("counters":[],"groups":[],"doubts":[[0,"it may",false]]})";
  EXPECT_EQ(reached(some + same, false), reached(code, false));
  EXPECT_EQ(reached(some + code), reached(code));
}

TEST(KernelFlow, WhatWasSeenToStoreNoneHoldsForLaunchesLikeItOfCodeThatIsKnown) {
  const auto step = [](const std::function<void(Program&)>& before, bool known_code = true, int grid = 8) {
    return repeated(
        [=](Program& p) {
          p.plain(kC, kB);
          p.untyped(kA, kB, known_code, "", grid);
          p.by_class(kA, 0);
        },
        before);
  };
  const auto seen = [](const char* found, bool known_code = true) {
    return [=](Program& p) {
      for (int i = 0; i < 2; ++i) p.untyped(kA, kB, known_code, Program::compared({kA, kB}, {kB}) + found);
    };
  };
  constexpr const char* kPlain = ",\"plain\":true";
  const Result result = step(seen(kPlain));
  EXPECT_EQ(result.text(2), "A:rw");
  EXPECT_TRUE(result.schedule().ops[1].fixed_launch) << "of other shapes nothing was seen";
  const auto is_unknown = [](const Result& each) {
    return each.unknown(2, "a kernel that too little is known about may have put pointers into it");
  };
  EXPECT_TRUE(is_unknown(step(nullptr)));
  EXPECT_TRUE(is_unknown(step(seen(kPlain, false), false))) << "replay cannot tell whether it is the same kernel";
  EXPECT_TRUE(is_unknown(step(seen("")))) << "it may have stored again what was there already";
  EXPECT_TRUE(is_unknown(step(seen(",\"addresses\":true"))));
  EXPECT_TRUE(is_unknown(step(seen(kPlain), true, 16))) << "another shape";
  EXPECT_TRUE(is_unknown(step([&](Program& p) {
    seen(kPlain)(p);
    p.untyped(kB, kA, true, Program::compared({kA, kB}, {kA}));
  }))) << "and once addresses lay there";
  EXPECT_TRUE(is_unknown(step([&](Program& p) {
    for (int i = 0; i < 2; ++i) p.untyped(kA, kB, true, Program::compared({kA}, {kA}) + kPlain);
  }))) << "not all was compared";
}

TEST(KernelFlow, WhatAKernelMovesWatchingDoesNotTell) {
  // No addresses lay in what it moved when it was seen.
  const auto step = [](const std::string& rule) {
    return repeated(
        [](Program& p) {
          p.upload(kTable, {kA, kB});
          p.untyped(kTable, kC, true);
          p.by_class(kC, 0);
        },
        [](Program& p) {
          for (int i = 0; i < 2; ++i) p.untyped(kA, kC, true, Program::compared({kA, kC}, {kC}) + ",\"plain\":true");
        },
        rule);
  };
  EXPECT_EQ(step("").text(2), "A:rw B:rw C:rw");
  for (const std::string modes : {R"(["in","out"])", R"(["inout","inout"])"}) {
    const std::string rule = R"({"kernel":"seen","params":)" + modes;
    EXPECT_EQ(step(rule + "}").text(2), "A:rw B:rw C:rw") << modes;
    EXPECT_EQ(step(rule + R"(,"fractions":"s.*n"})").text(2), "C:rw") << modes;
    EXPECT_EQ(step(rule + R"(,"fractions":"s.*m"})").text(2), "A:rw B:rw C:rw") << modes;
  }
  // What it stores it stores.
  EXPECT_EQ(step(R"({"kernel":"seen","params":["in","table-out"],"fractions":"seen"})").text(2), "A:rw B:rw C:rw T:rw");
}

}  // namespace
}  // namespace nimble::analyzer
