// Evidence from watching: observations, the source that speaks from them, and --trust.
#include "analyzer/access/sources/observed.h"

#include <gtest/gtest.h>

#include <functional>

#include "analyzer/check/checker.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/report/report.h"
#include "analyzer/report/why.h"
#include "tests/unit/analyzer/watched_case.h"

namespace nimble::analyzer {
namespace {

using test::accesses;
using test::Case;
using test::declared;
using test::hex;
using test::kCode;
using test::kSize;
using test::kTwo;
using test::object;
using test::probed;
using test::reason;

TEST(ObservedAccess, WhatWasNeverWrittenIsRead) {
  Analysis analysis = Case().analyze();
  EXPECT_EQ(analysis.evidence.accesses.ops[0].evidence, Evidence::observed);
  EXPECT_EQ(accesses(analysis), "0r 1rw");
  EXPECT_TRUE(analysis.evidence.conflicts.empty());
}

TEST(ObservedAccess, OnceWrittenIsWritten) {
  Case once;
  once.first = [](int step) { return probed({0, 1}, step == 1 ? std::vector{0, 1} : std::vector{1}); };
  EXPECT_EQ(accesses(once.analyze()), "0rw 1rw");
}

// A step that does the same again stores what is there.
TEST(ObservedAccess, OfWhatWroteNothingNothingIsKnown) {
  Case still;
  still.first = [](int) { return probed({0, 1}, {}); };
  EXPECT_NE(reason(still.analyze()).find("it was not seen to write anything"), std::string::npos);
}

// A library may pass a kernel an address just past an object. The memory there is not the kernel's.
TEST(ObservedAccess, AnAddressPastAnObjectThatPointedNowhereIsNotAPointer) {
  for (const bool is_known : {false, true}) {
    Case past_end;
    past_end.params = "[[0,24]]";
    // In the first two steps nothing is past the object. In the last two there is unknown memory, or known memory.
    past_end.before = [&](test::TraceText& text) {
      text.alloc(object(6), kSize);
      if (is_known) text.alloc(object(6) + kSize, kSize);
    };
    std::uint64_t distance = kSize + 16;
    past_end.words = [&](int step) {
      const std::uint64_t target = object(step < 2 ? step + 1 : 6);
      return hex(object(0)) + hex(target) + hex(target + (step < 2 ? kSize + 16 : distance));
    };
    bool is_nowhere = true;
    past_end.first = [&](int step) {
      if (step > 1) return std::string();
      return probed({0, step + 1}, {step + 1}) + (is_nowhere ? ",\"nowhere\":[16]" : "");
    };
    Analysis analysis = past_end.analyze();
    EXPECT_EQ(analysis.evidence.accesses.ops[0].evidence, Evidence::observed);
    EXPECT_EQ(accesses(analysis), "0r 6rw") << is_known;
    distance += 8;
    EXPECT_NE(reason(past_end.analyze()), "") << "not where it was";
    distance -= 8;
    is_nowhere = false;
    EXPECT_NE(reason(past_end.analyze()), "") << "somewhere";
  }
}

// Nor is it one only because it was none where a scalar was another.
TEST(ObservedAccess, AnAddressPastAnObjectMustHavePointedNowhereInSimilarLaunches) {
  constexpr std::uint64_t kBehind = object(6) + kSize;
  for (const std::uint64_t nowhere_in : {1u, 0u}) {
    Case past_end;
    past_end.params = "[[0,24],[24,8]]";
    const auto words = [](std::uint64_t target, std::uint64_t mode) {
      return hex(object(0)) + hex(target) + hex(target + kSize + 16) + hex(mode);
    };
    past_end.before = [&](test::TraceText& text) {
      for (int i = 1; i < 3; ++i)
        text.launch(0, words(object(i), nowhere_in), 0, probed({0, i}, {i}) + ",\"nowhere\":[16]");
      text.alloc(object(6), kSize);
      text.alloc(kBehind, kSize);
      const std::string compared = "[" + std::to_string(object(0)) + ",4096],[" + std::to_string(object(6)) +
                                   ",4096],[" + std::to_string(kBehind) + ",4096]";
      for (int i = 0; i < 2; ++i)
        text.launch(
            0, words(object(6), 1), 0,
            ",\"plain\":true,\"compared\":[" + compared + "],\"written\":[[" + std::to_string(object(6)) + ",4096]]");
    };
    past_end.words = [&](int) { return words(object(6), 1); };
    past_end.first = [](int) { return std::string(); };
    if (nowhere_in == 1)
      EXPECT_EQ(accesses(past_end.analyze()), "0r 6rw");
    else
      EXPECT_NE(reason(past_end.analyze()), "");
  }
}

// Memory that nothing has filled is not read from: a kernel keeps intermediate results there.
TEST(ObservedAccess, UnfilledMemoryCountsAsWritten) {
  Case scratch;
  scratch.filled = false;
  EXPECT_EQ(accesses(scratch.analyze()), "0rw 1rw");
  // Another kernel that was not looked at may have filled it, but not one of the same, which was seen not to.
  scratch.before = [](test::TraceText& text) { text.launch(1, hex(object(0)) + hex(object(5))); };
  EXPECT_EQ(accesses(scratch.analyze()), "0r 1rw");
  scratch.before = [](test::TraceText& text) { text.launch(0, hex(object(0)) + hex(object(5))); };
  EXPECT_EQ(accesses(scratch.analyze()), "0rw 1rw");
  // Nor does a node of a graph, which did not run.
  scratch.before = [](test::TraceText& text) {
    text.launch(1, hex(object(0)) + hex(object(5)), 0, std::string(",\"call\":\"") + kKernelOfAGraph + "\"");
  };
  EXPECT_EQ(accesses(scratch.analyze()), "0rw 1rw");
  // Nor an unknown op.
  scratch.before = [](test::TraceText& text) {
    text.call("opaque", "\"stream\":0");
    text.launch(0, hex(object(0)) + hex(object(1)), 0, probed({0, 1}, {1}));
  };
  EXPECT_EQ(accesses(scratch.analyze()), "0rw 1rw");
}

// A kernel may have restored zeros: counters and sums that no one else may touch meanwhile.
TEST(ObservedAccess, WhatWasOnlyClearedIsWritten) {
  Case cleared;
  cleared.filled = false;
  cleared.before = [](test::TraceText& text) { text.set(object(0), kSize); };
  EXPECT_EQ(accesses(cleared.analyze()), "0rw 1rw");
  // Also by PyTorch's kernel for that; not by another one.
  cleared.before = [](test::TraceText& text) { text.launch(2, hex(object(0)) + hex(object(5))); };
  EXPECT_EQ(accesses(cleared.analyze()), "0r 1rw");
  cleared.third = "_Z6vectorIN2at6native11FillFunctorIfEEEvPfPKf";
  EXPECT_EQ(accesses(cleared.analyze()), "0rw 1rw");
}

// The nodes of a graph fill what its capture has allocated: the program runs the graph before it reads that.
TEST(ObservedAccess, NodesOfAGraphFillMemoryOfTheirCapture) {
  const std::string of_graph = std::string(",\"call\":\"") + kKernelOfAGraph + "\"";
  const auto captured = [](test::TraceText& text) {
    text.call("alloc", "\"addr\":" + std::to_string(object(0)) + ",\"size\":" + std::to_string(kSize) +
                           R"(,"memory":"device","call":")" + kMemoryOfACapture + "\"");
  };
  Case graph;
  graph.filled = false;
  const auto with = [&](const std::function<void(test::TraceText&)>& before) {
    graph.before = before;
    return accesses(graph.analyze());
  };
  const auto fill = [&](test::TraceText& text, int function = 1) {
    text.launch(function, hex(object(0)) + hex(object(5)), 0, of_graph);
  };
  EXPECT_EQ(with([&](auto& text) { captured(text); }), "0rw 1rw");
  EXPECT_EQ(with([&](auto& text) { captured(text), fill(text); }), "0r 1rw");
  // After the graph's own nodes it is there afresh.
  EXPECT_EQ(with([&](auto& text) { captured(text), fill(text), captured(text); }), "0r 1rw");
  // But not by a kernel that was seen to leave it alone; nor in what came to lie there later.
  EXPECT_EQ(with([&](auto& text) { captured(text), fill(text, 0), captured(text); }), "0rw 1rw");
  EXPECT_EQ(with([&](auto& text) { captured(text), fill(text), text.free(object(0)), captured(text); }), "0rw 1rw");
  EXPECT_EQ(with([&](auto& text) { captured(text), fill(text), text.alloc(object(0), kSize); }), "0rw 1rw");
  EXPECT_EQ(with([&](auto& text) { captured(text), fill(text), text.alloc(object(0), kSize), captured(text); }),
            "0rw 1rw");
}

// If several words lead to one object it is unknown through which it was written.
TEST(ObservedAccess, WhatWasWrittenThroughOneOfSeveralWordsIsWritten) {
  Case it;
  it.name = "opaque";
  it.params = "[[0,8],[8,8],[16,8],[24,4]]";
  it.first_words = hex(object(0)) + hex(object(0)) + hex(object(1)) + "02000000";
  const auto with = [&](int second) {
    it.before = [=](test::TraceText& text) {
      for (const int each : {0, 2}) text.copy(object(each), object(5), kSize);
      text.launch(0, hex(object(0)) + hex(object(second)) + hex(object(1)) + "01000000", 0,
                  second == 0 ? probed({0, 1}, {0, 1}) : probed({0, 1, 2}, {0, 1}));
    };
    return accesses(it.analyze());
  };
  EXPECT_EQ(with(0), "0rw 1rw");
  it.first_words = hex(object(0)) + hex(object(2)) + hex(object(1)) + "02000000";
  it.first = [](int) { return probed({0, 1, 2}, {1}); };
  EXPECT_EQ(with(0), "0r 2r 1rw");  // which two objects here is not known
}

TEST(ObservedAccess, TwoWholeStepsAreNeeded) {
  Case two;
  two.first = [](int step) { return step < 2 ? probed({0, 1}, {1}) : std::string(); };
  EXPECT_EQ(accesses(two.analyze()), "0r 1rw");
  Case one;
  one.first = [](int step) { return step < 1 ? probed({0, 1}, {1}) : probed({1}, {1}); };
  EXPECT_NE(reason(one.analyze()).find("was seen in 1 launch like it (the step came 4 times)"), std::string::npos);
  Case none;
  none.first = [](int) { return std::string(); };
  EXPECT_EQ(reason(none.analyze()), "its name does not tell its parameter types");
}

// Launches outside of the step count where they are like its own: a step that a graph holds was never seen running.
TEST(ObservedAccess, LaunchesThatDifferInPointersAloneAreAlike) {
  const auto with = [](const std::string& words, int grid, int times) {
    Case it;
    it.params = "[[0,8],[8,8],[16,4]]";
    it.first_words = hex(object(0)) + hex(object(1)) + "01000000";
    it.first = [](int) { return ""; };
    it.before = [=](test::TraceText& text) {
      for (int i = 0; i < times; ++i) text.launch(0, words, 0, probed({2, 3}, {3}), grid);
      text.synchronize();
    };
    return it.analyze();
  };
  const std::string words = hex(object(2)) + hex(object(3));
  EXPECT_EQ(accesses(with(words + "01000000", 8, 2)), "0r 1rw");
  for (const Analysis& unlike : {with(words + "01000000", 8, 1), with(words + "02000000", 8, 2),
                                 with(words + "01000000", 9, 2), with(hex(object(2)) + hex(0) + "01000000", 8, 2)})
    EXPECT_NE(reason(unlike).find("what it writes was seen in"), std::string::npos);
}

TEST(ObservedAccess, AWriteInAStepThatWasSeenInPartCountsToo) {
  Case part;
  part.first = [](int step) { return step == 3 ? probed({0}, {0}) : probed({0, 1}, {1}); };
  EXPECT_EQ(accesses(part.analyze()), "0rw 1rw");
  // Where both words lead to what was written, through either.
  part.words = [](int step) { return hex(object(0)) + hex(object(step == 3 ? 0 : 1)) + hex(object(2)); };
  part.params = "[[0,8],[8,8],[16,8]]";
  part.first = [](int step) { return step == 3 ? probed({0}, {0}) : probed({0, 1, 2}, {}); };
  EXPECT_EQ(accesses(part.analyze()), "0rw 1rw 2r");
}

TEST(ObservedAccess, PointersMayLeadElsewhereInEveryStep) {
  // The buffers swap roles: neither is read in one step and written in another through the same word.
  Case swapping;
  swapping.words = [](int step) { return hex(object(step % 2)) + hex(object(1 - step % 2)); };
  swapping.first = [](int step) { return probed({0, 1}, {1 - step % 2}); };
  Analysis analysis = swapping.analyze();
  EXPECT_EQ(accesses(analysis), "1r 0rw");
}

TEST(ObservedAccess, AnObjectIsAnAllocationNotAnAddress) {
  // Memory of another size stood there when it was compared.
  Case other;
  other.before = [](test::TraceText& text) {
    text.free(object(1));
    text.alloc(object(1), kSize / 2);
  };
  EXPECT_NE(reason(other.analyze()).find("was seen in 0 launches like it (the step came 4 times)"), std::string::npos);
}

TEST(ObservedAccess, TwoWordsThatLeadToOneObjectAreOne) {
  Case alias;
  alias.words = [](int step) { return hex(object(0) + (step == 0 ? 0 : 64)) + hex(object(0)); };
  alias.first = [](int) { return probed({0}, {0}); };
  EXPECT_EQ(accesses(alias.analyze()), "0rw");
}

TEST(ObservedAccess, WhatAnotherLaunchOfTheKernelWroteItMayWriteToo) {
  Case prologue;
  prologue.before = [](test::TraceText& text) {
    text.launch(0, hex(object(2)) + hex(object(3)), 0, probed({2, 3}, {2}));
    text.set(object(0), 16);
  };
  EXPECT_EQ(accesses(prologue.analyze()), "0rw 1rw");
}

TEST(ObservedAccess, APointerThatIsMostlyNullWasNotSeenOftenEnough) {
  Case rare;
  rare.words = [](int step) { return hex(object(0)) + hex(step == 3 ? object(1) : 0); };
  rare.first = [](int step) { return step == 3 ? probed({0, 1}, {1}) : probed({0}, {}); };
  Analysis analysis = rare.analyze();
  // Steps in which it is null are of another pattern, and one of those is shown.
  EXPECT_EQ(accesses(analysis), "0r");
  EXPECT_EQ(analysis.step.patterns, 2u);
}

TEST(ObservedAccess, DoesNotSpeakWhereMemoryMayBeReachedOtherwise) {
  Case global;
  global.self_contained = false;
  EXPECT_EQ(reason(global.analyze()), "its image is not self-contained");
  Case texture;
  texture.before = [](test::TraceText& text) { text.call("hidden", "\"note\":\"a texture object\""); };
  EXPECT_NE(reason(texture.analyze()).find("a texture object"), std::string::npos);
  Case stray;
  stray.first_words = hex(object(0)) + hex(0x7f0000000000);
  EXPECT_NE(reason(stray.analyze()).find("addresses of unknown memory"), std::string::npos);
  Case nameless;
  nameless.more = "";
  EXPECT_NE(reason(nameless.analyze()).find("cannot be recognised"), std::string::npos);
  Case attributes;
  attributes.first = [](int) { return probed({0, 1}, {1}) + ",\"attrs\":[4,12]"; };
  EXPECT_NE(reason(attributes.analyze()).find("attributes"), std::string::npos);
}

TEST(ObservedAccess, TiesTheScheduleToTheCodeAndTheLaunch) {
  Analysis analysis = Case().analyze();
  Schedule schedule = build_schedule(analysis);
  EXPECT_EQ(schedule.functions[0].code, 0xabu);
  EXPECT_TRUE(schedule.ops[0].fixed_launch);
  EXPECT_EQ(schedule.functions[1].code, 0u);
  EXPECT_FALSE(schedule.ops[1].fixed_launch);
  EXPECT_NE(schedule_text(schedule).find(R"("code": "00000000000000ab")"), std::string::npos);
}

TEST(Trust, WeakerSourcesAreNotBelieved) {
  EXPECT_EQ(accesses(Case().analyze(Evidence::observed)), "0r 1rw");
  EXPECT_EQ(reason(Case().analyze(Evidence::declared)),
            "its name does not tell its parameter types; only known from what it was seen to write (observed); --trust "
            "declared "
            "excludes it");
  EXPECT_EQ(accesses(declared().analyze(Evidence::declared)), "0r 1rw");
  EXPECT_NE(reason(declared().analyze(Evidence::proven))
                .find("only known from its signature (declared); --trust proven excludes it"),
            std::string::npos);
  Case proof;
  proof.more = R"(,"proven":[[[0],"r"],[[8],"w"]],"same_code":true)";
  EXPECT_EQ(accesses(proof.analyze(Evidence::proven)), "0r 1rw");
  EXPECT_NE(reason(proof.analyze(Evidence::exact)).find("its code (proven); --trust exact"), std::string::npos);
}

TEST(Trust, NamesAreTheirOwn) {
  for (std::string_view word : kTrustNames) EXPECT_EQ(name(*trust_of(word)), word);
  EXPECT_FALSE(trust_of("assumed"));
  EXPECT_FALSE(trust_of(""));
}

TEST(Trust, TheScheduleSaysWhatItWasMadeWith) {
  Analysis analysis = Case().analyze(Evidence::declared);
  std::string text = schedule_text(build_schedule(analysis));
  EXPECT_EQ(read_schedule_order(text, "s").trust, Evidence::declared);
  EXPECT_FALSE(check_schedule(analysis, text, "s").unordered);
  std::string changed = text;
  changed.replace(changed.find("\"declared\""), 10, "\"everyone\"");
  EXPECT_THROW(read_schedule_order(changed, "s"), InputError);
}

TEST(Trust, AScheduleThatBelievesMoreIsFoundOut) {
  std::string text = schedule_text(build_schedule(Case().analyze()));
  EXPECT_FALSE(check_schedule(Case().analyze(), text, "s").unordered);
  EXPECT_TRUE(check_schedule(Case().analyze(Evidence::declared), text, "s").unordered);
}

}  // namespace
}  // namespace nimble::analyzer
