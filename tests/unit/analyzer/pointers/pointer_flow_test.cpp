// What kernels reach over pointers in memory, over the whole pipeline: a step of a few ops, repeated.
#include "analyzer/pointers/pointer_flow.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/analyzer/pointers/pointers_in_memory.h"

namespace nimble::analyzer {
namespace {

using namespace test;

TEST(PointersInMemory, ATableFromTheHostLeadsToWhatItHolds) {
  const Result result = repeated([](Program& p) {
    p.upload(kTable, {kA, kB});
    p.reads(kTable);
    p.plain(kA, kB);
    p.writes(kTable);
  });
  EXPECT_EQ(result.text(1), "A:r B:r C:rw T:r");
  EXPECT_EQ(result.text(3), "A:rw B:rw C:r T:r");
  const Schedule schedule = result.schedule();
  ASSERT_TRUE(schedule.ops[0].payload);
  ASSERT_EQ(schedule.ops[0].payload->size(), 2u);
  EXPECT_EQ((*schedule.ops[0].payload)[1].at, 8u);
  EXPECT_EQ(schedule.objects[(*schedule.ops[0].payload)[1].pointer.object].size, kSize);
  EXPECT_TRUE(schedule.ops[0].dst.fixed);
  EXPECT_FALSE(schedule.carries);
}

TEST(PointersInMemory, FromTheHostsOwnMemoryToo) {
  const Result result = repeated([](Program& p) {
    p.upload(kTable, {kA, kB}, ",\"sync\":true", 0x7ffc00000000);
    p.reads(kTable);
    p.plain(kA, kB);
  });
  EXPECT_EQ(result.text(1), "A:r B:r C:rw T:r");
  EXPECT_EQ(result.schedule().ops[0].submit, Submit::direct);
  EXPECT_TRUE(result.schedule().ops[0].payload);
}

TEST(PointersInMemory, CopiesOnTheDeviceMoveThem) {
  const Result result = repeated([](Program& p) {
    p.upload(kStaging, {kA, kB});
    p.text.copy(kTable, kStaging + 8, 8);
    p.text.copy(kTable + 8, kStaging, 8);
    p.reads(kTable);
  });
  EXPECT_EQ(result.text(3), "A:r B:r C:rw T:r");
  // A half of it is no pointer, and nothing is left of what was overwritten.
  const Result other = repeated([](Program& p) {
    p.upload(kTable, {kA, kB});
    p.text.set(kTable + 8, 8);
    p.reads(kTable);
  });
  EXPECT_EQ(other.text(2), "A:r C:rw T:r");
}

TEST(PointersInMemory, WhatTheStepDoesNotPutThereIsNotKnown) {
  const auto reads = [](Program& p) {
    p.reads(kTable);
    p.plain(kA, kB);
  };
  EXPECT_TRUE(repeated(reads).unknown(0, "does not fill"));
  EXPECT_TRUE(repeated(reads, [](Program& p) { p.upload(kTable, {kA, kB}); }).unknown(0, "outside of the step"));
  // Only a part of it, and the rest from before.
  EXPECT_TRUE(repeated([](Program& p) {
                p.text.copy(kTable, kPinned, 8, 0, ",\"words\":[[0," + std::to_string(kA) + "]]");
                p.reads(kTable);
              }).unknown(1, "does not fill"));
  // After the kernel is before it, the next time.
  EXPECT_TRUE(repeated([](Program& p) {
                p.reads(kTable);
                p.upload(kTable, {kA, kB});
              }).unknown(0, "does not fill"));
}

TEST(PointersInMemory, ContentThatWasNotExaminedIsUnknown) {
  EXPECT_TRUE(repeated([](Program& p) {
                p.text.copy(kTable, kPinned, kTableBytes);
                p.reads(kTable);
              }).unknown(1, "content the trace does not hold"));
  // Pinned memory that the device has written, or that a function of the host may have: it was looked at too early.
  EXPECT_TRUE(repeated([](Program& p) {
                p.text.copy(kPinned, kStaging, kTableBytes);
                p.upload(kTable, {kA, kB});
                p.reads(kTable);
              }).unknown(2, "content the trace does not hold"));
  EXPECT_TRUE(repeated([](Program& p) {
                p.text.call("host_function", "\"stream\":0");
                p.upload(kTable, {kA, kB});
                p.reads(kTable);
              }).unknown(2, "content the trace does not hold"));
  EXPECT_TRUE(repeated([](Program& p) {
                p.upload(kTable, {kA, kB});
                p.text.call("opaque", "\"stream\":0");
                p.reads(kTable);
              }).unknown(2, "too little is known"));
  // The host's memory itself.
  EXPECT_TRUE(repeated([](Program& p) {
                p.reads(kPinned);
                p.plain(kA, kB);
              }).unknown(0, "the host may fill it"));
}

TEST(PointersInMemory, AKernelMayFillATable) {
  const auto local = [](Program& p) {
    p.text.alloc_async(kPool, kTableBytes);
    p.fills(kPool, kA, kB);
    p.reads(kPool);
    p.text.free_async(kPool);
  };
  const Result result = repeated(local);
  EXPECT_EQ(result.text(1), "A:rw B:rw L:rw");
  EXPECT_EQ(result.text(2), "A:r B:r C:rw L:r");
  // A table that is older than the step may hold others.
  EXPECT_TRUE(repeated([](Program& p) {
                p.fills(kTable, kA, kB);
                p.reads(kTable);
              }).unknown(1, "not known"));
  // Nor is it known what a kernel without types has put there.
  EXPECT_TRUE(repeated([](Program& p) {
                p.text.alloc_async(kPool, kTableBytes);
                p.unknown(kPool, kA);
                p.reads(kPool);
                p.text.free_async(kPool);
              }).unknown(2, "a kernel that too little is known about"));
}

TEST(PointersInMemory, AClassByValueLeadsAnywhere) {
  const Result result = repeated([](Program& p) {
    p.text.alloc_async(kPool, kTableBytes);
    p.upload(kPool, {kA, kB});
    p.by_class(kPool, 0);
    p.text.free_async(kPool);
  });
  EXPECT_EQ(result.text(2), "A:rw B:rw L:rw");
  EXPECT_TRUE(result.schedule().ops[1].payload);
  // Over two tables.
  const Result deep = repeated([](Program& p) {
    p.text.alloc_async(kPool, kTableBytes);
    p.upload(kPool, {kTable, 0});
    p.upload(kTable, {kA, kB});
    p.by_class(kPool, 0);
    p.text.free_async(kPool);
  });
  EXPECT_EQ(deep.text(3), "A:rw B:rw L:rw T:rw");
  EXPECT_TRUE(repeated([](Program& p) { p.by_class(kTable, 0); },
                       [](Program& p) {
                         p.upload(kTable, {kA, kB});
                       })
                  .unknown(0, "class by value"));
}

// What lies in memory when a graph runs, the program may have put there since.
TEST(PointersInMemory, AClassOfANodeMustLeadToWhatItsGraphFills) {
  const std::string of_graph = std::string(",\"call\":\"") + kKernelOfAGraph + "\"";
  const auto last_op = [&](const std::function<void(Program&)>& before, const std::function<void(Program&)>& nodes) {
    Program program;
    const std::uint64_t allocations = 6;
    std::uint64_t launches = 0;
    if (before) {
      for (int i = 0; i < 2; ++i) before(program), ++launches;
    }
    nodes(program);
    program.by_class(kTable, 0, of_graph);
    const TraceFile file = program.text.read();
    AnalysisOptions options = believing();
    options.one_kind = true;
    StepPlace place;
    place.first_seq = allocations + launches;
    place.last_seq = file.trace.calls.back().seq;
    place.ops = static_cast<std::uint32_t>(place.last_seq - place.first_seq + 1);
    options.step = place;
    const Result result{program.text.analyze(options)};
    return result.text(place.ops - 1);
  };
  const auto seen = [](const char* found, std::uint64_t rest = 0) {
    const std::string table = "[" + std::to_string(kTable) + "," + std::to_string(kTableBytes) + "]";
    return [=](Program& p) {
      p.by_class(kTable, rest, ",\"compared\":[" + table + "],\"written\":[" + table + "]" + found);
    };
  };
  const auto nothing = [](Program&) {};
  const auto clears = [](Program& p) { p.text.set(kTable, kTableBytes); };
  const auto fills = [](Program& p) { p.upload(kTable, {kA, kB}); };
  const auto fills_all = [&](Program& p) {
    for (const std::uint64_t address : {kA, kB}) p.text.set(address, kSize);
    fills(p);
  };
  EXPECT_EQ(last_op(nullptr, nothing).substr(0, 1), "?");
  EXPECT_EQ(last_op(nullptr, clears), "T:rw");
  EXPECT_EQ(last_op(nullptr, fills).substr(0, 1), "?") << "what these lead to is not known";
  EXPECT_EQ(last_op(nullptr, fills_all), "A:rw B:rw T:rw");
  EXPECT_EQ(last_op(seen(",\"plain\":true"), nothing), "T:rw") << "it was seen to follow nothing";
  EXPECT_EQ(last_op(seen(",\"plain\":true", 3), nothing), "T:rw") << "whatever else lay in its class";
  EXPECT_EQ(last_op(seen(""), nothing).substr(0, 1), "?") << "it may have followed what lay there";
}

TEST(PointersInMemory, WhatTheStepBeforeLeftIsThere) {
  // It may leave a pointer to B in A, and follow it the next time: B is touched where no parameter shows it.
  const Result result = repeated([](Program& p) {
    p.by_class(kA, 0);
    p.plain(kC, kB);
    p.by_class(kA, kB);
  });
  EXPECT_EQ(result.text(0), "A:rw B:rw");
  EXPECT_TRUE(result.schedule().carries);
  // Where it begins by overwriting both, nothing is left.
  const Result cleared = repeated([](Program& p) {
    p.text.set(kA, kSize);
    p.text.set(kB, kSize);
    p.by_class(kA, 0);
    p.plain(kC, kB);
    p.by_class(kA, kB);
  });
  EXPECT_EQ(cleared.text(2), "A:rw");
  EXPECT_FALSE(cleared.schedule().carries);
}

TEST(PointersInMemory, WhatMayBePointersMustNotBe) {
  const Result result = repeated([](Program& p) {
    p.upload(kTable, {});
    p.anything(kTable);
  });
  EXPECT_EQ(result.text(1), "C:rw T:rw");
  ASSERT_TRUE(result.schedule().ops[0].payload);
  EXPECT_TRUE(result.schedule().ops[0].payload->empty());
  EXPECT_TRUE(repeated([](Program& p) {
                p.upload(kTable, {kA});
                p.anything(kTable);
              }).unknown(1, "there are pointers in it"));
}

TEST(PointersInMemory, ARuleNamesTables) {
  const std::string rule = R"({"kernel":"unknown","params":["table-in","out"]})";
  const auto step = [](Program& p) {
    p.upload(kTable, {kA, kB});
    p.unknown(kTable, kC);
  };
  EXPECT_EQ(repeated(step, nullptr, rule).text(1), "A:r B:r C:rw T:r");
  EXPECT_EQ(repeated(step, nullptr, R"({"kernel":"unknown","params":["table","out"]})").text(1), "A:rw B:rw C:rw T:r");
  EXPECT_TRUE(repeated([](Program& p) { p.unknown(kTable, kC); }, nullptr, rule)
                  .unknown(0, "it is not known what is in the table"));
  // And who fills them.
  EXPECT_EQ(repeated(
                [](Program& p) {
                  p.text.alloc_async(kPool, kTableBytes);
                  p.unknown(kPool, kA);
                  p.reads(kPool);
                  p.text.free_async(kPool);
                },
                nullptr, R"({"kernel":"unknown","params":["table-out","in"]})")
                .text(2),
            "A:r C:rw L:r");
}

TEST(PointersInMemory, ATableThatWasSeenWrittenIsNoReadOnlyOne) {
  // What is written over the table's pointers must not pass for the write that was seen to the table.
  const std::string seen = "[[" + std::to_string(kTable) + "," + std::to_string(kTableBytes) + "]]";
  const Result result = repeated([&](Program& p) {
    p.upload(kTable, {kA, kB});
    p.writes(kTable, kC, ",\"compared\":" + seen + ",\"written\":" + seen);
  });
  ASSERT_EQ(result.analysis.evidence.conflicts.size(), 1u);
  EXPECT_EQ(result.text(1), "A:rw B:rw C:r T:rw");
}

// If its parameters are not compared, it may get anything: its destination need not be the recorded one.
TEST(PointersInMemory, UncomparedOpsMayFillAnything) {
  const Result kernel = repeated([](Program& p) {
    p.untyped(kTable, kA, true);
    p.plain(kA, kC);
    p.by_class(kStaging, 0);
  });
  EXPECT_EQ(kernel.text(0).substr(0, 1), "?");
  EXPECT_TRUE(kernel.unknown(2, "a kernel that too little is known about"));
  // But a node of a graph has fixed parameters, and a direct copy has its destination compared.
  const Result copy = repeated([](Program& p) {
    p.upload(kTable, {kA, kB}, ",\"sync\":true", 0x7ffc00000000);
    p.plain(kA, kC);
    p.by_class(kStaging, 0);
    p.plain(kA, kC);
  });
  EXPECT_EQ(copy.text(2), "S:rw");
  const Schedule schedule = copy.schedule();
  EXPECT_EQ(schedule.ops[0].submit, Submit::direct);
  EXPECT_TRUE(schedule.ops[0].dst.fixed);
  EXPECT_TRUE(schedule.ops[0].payload);
}

// Looking at an object does not show what another stream has yet to write to it.
TEST(PointersInMemory, WhoLooksMustHaveWaited) {
  const auto step = [](const std::function<void(Program&)>& before) {
    return repeated(
        [](Program& p) {
          p.plain(kA, kC);
          p.by_class(kTable, 0);
          p.plain(kC, kB);
        },
        before);
  };
  const auto uploads_elsewhere = [](Program& p) {
    p.text.stream();
    p.text.copy(kTable, kPinned, kTableBytes, 1, ",\"words\":[[0," + std::to_string(kA) + "]]");
  };
  EXPECT_TRUE(step([=](Program& p) {
                uploads_elsewhere(p);
                p.looked({kA, kTable});
              }).unknown(1, "it is not known what is there"));
  EXPECT_EQ(step([=](Program& p) {
              uploads_elsewhere(p);
              p.text.synchronize(1);
              p.looked({kA, kTable});
            }).text(1),
            "T:rw");
  // The stream of unrecorded work is unknown.
  const auto unrecorded = [](Program& p) {
    p.text.call("opaque", std::string(R"("stream":0,"call":")") + kNotRecorded + "\"");
  };
  EXPECT_TRUE(step([=](Program& p) {
                unrecorded(p);
                p.looked({kA, kTable});
              }).unknown(1, "too little is known"));
  EXPECT_EQ(step([=](Program& p) {
              unrecorded(p);
              p.text.call("context_synchronize", "\"context\":0");
              p.looked({kA, kTable});
            }).text(1),
            "T:rw");
  EXPECT_TRUE(step([=](Program& p) {
                p.text.call("context_synchronize", "\"context\":0");
                unrecorded(p);
                p.looked({kA, kTable});
              }).unknown(1, "too little is known"));
}

TEST(PointersInMemory, WhereMemoryWasLookedThroughThereIsWhatWasSeen) {
  const auto step = [](const std::function<void(Program&)>& before) {
    return repeated(
        [](Program& p) {
          p.by_class(kTable, 0);
          p.plain(kA, kC);
          p.plain(kB, kC);
        },
        before);
  };
  const auto taint = [](Program& p) {
    p.upload(kTable, {kA, kB});
    p.text.call("opaque", "\"stream\":0");
  };
  EXPECT_TRUE(step(taint).unknown(0, "too little is known"));
  EXPECT_EQ(step([=](Program& p) {
              taint(p);
              p.looked({kA, kTable});
            }).text(0),
            "T:rw");
  EXPECT_EQ(step([=](Program& p) {
              taint(p);
              p.looked({kTable}, ",\"plain\":true", true);
            }).text(0),
            "T:rw")
      << "whatever the kernel may have done";
  EXPECT_TRUE(step([=](Program& p) {
                taint(p);
                p.looked({kA});
              }).unknown(0, "too little is known"))
      << "it was not searched";
  EXPECT_TRUE(step([=](Program& p) {
                taint(p);
                p.looked({kA, kTable}, "");
              }).unknown(0, "too little is known"))
      << "there was something";
  EXPECT_TRUE(step([=](Program& p) {
                p.looked({kA, kTable});
                taint(p);
              }).unknown(0, "too little is known"))
      << "that was too early";
  // What the step puts there itself is there.
  EXPECT_EQ(repeated(
                [](Program& p) {
                  p.upload(kTable, {kA, kB});
                  p.by_class(kTable, 0);
                },
                [](Program& p) {
                  p.looked({kA, kTable});
                })
                .text(1),
            "A:rw B:rw T:rw");
}

TEST(PointersInMemory, NothingIsSearchedIfNothingIsFollowed) {
  const Result result = repeated([](Program& p) {
    p.upload(kTable, {kA, kB});
    p.plain(kA, kB);
  });
  EXPECT_TRUE(result.analysis.evidence.accesses.compared.empty());
  EXPECT_FALSE(result.schedule().ops[0].payload);
}

}  // namespace
}  // namespace nimble::analyzer
