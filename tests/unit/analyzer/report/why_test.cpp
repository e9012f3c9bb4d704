#include "analyzer/report/why.h"

#include <gtest/gtest.h>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

struct Why {
  Analysis analysis;
  Why() {
    test::TraceText text;
    text.image(true);
    text.function("_Z3addPfPKf", "[[0,8],[8,8]]");
    text.function("mystery", "[[0,8]]");
    text.stream();
    for (std::uint64_t i = 1; i < 6; ++i) text.alloc(i << 16, 0x100);
    text.alloc(9 << 16, 0x100, "pinned");
    for (int repeat = 0; repeat < 4; ++repeat) {
      text.copy(1 << 16, 9 << 16, 64);              // 0
      text.copy((1 << 16) + 64, 9 << 16, 64);       // 1
      text.launch(0, hex(2 << 16) + hex(1 << 16));  // 2
      text.launch(0, hex(3 << 16) + hex(2 << 16));  // 3
      text.launch(0, hex(4 << 16) + hex(5 << 16));  // 4
      text.launch(1, hex(4 << 16));                 // 5
      text.record(1);                               // 6
      text.synchronize();
    }
    analysis = text.analyze();
  }
  void expect(std::uint32_t a, std::uint32_t b, std::initializer_list<const char*> parts) {
    std::string text = explain_order(analysis, a, b);
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
};

TEST(Why, NamesTheObjectTheRangesAndTheEvidence) {
  Why().expect(2, 0,
               {"Ordered: op 2 depends on op 0", "read after write of object 0 (device, 256 B), declared",
                "op 0 writes bytes 0 to 64 [exact]", "op 2 reads all of it [declared]", "launch add", "seq"});
}

TEST(Why, ShowsThePath) { Why().expect(0, 3, {"Ordered: through 2 dependencies", "0 -> 2", "2 -> 3"}); }

TEST(Why, SaysWhatKeepsTwoOpsApart) {
  Why why;
  why.expect(0, 1, {"Not ordered", "the bytes do not overlap", "neither writes"});
  why.expect(0, 4, {"Not ordered", "no object in common"});
  why.expect(4, 4, {"is the same op"});
}

TEST(Why, SaysWhoMayBeTalkingToOthers) {
  test::TraceText text;
  text.image(true);
  text.function("_Z3addPfPKf", "[[0,8],[8,8]]");
  text.stream();
  for (std::uint64_t i = 1; i < 5; ++i) text.alloc(i << 16, 0x100, i < 4 ? "registered" : "device");
  for (int repeat = 0; repeat < 4; ++repeat) {
    text.copy(4 << 16, 1 << 16, 64);              // 0
    text.launch(0, hex(2 << 16) + hex(2 << 16));  // 1
    text.launch(0, hex(3 << 16) + hex(3 << 16));  // 2
    text.set(1 << 16, 64);                        // 3
    text.synchronize();
  }
  Why why;
  why.analysis = text.analyze();
  why.expect(1, 2,
             {"Ordered: op 2 depends on op 1", "1 -> 2  order, assumed",
              "op 1 may be communicating with another process or the host: it touches registered memory, which others "
              "can reach",
              "op 2 may be communicating with another process or the host"});
  why.expect(0, 1,
             {"0 -> 1  order, assumed", "op 0 touches memory that others can reach", "op 1 may be communicating with"});
  why.expect(2, 3,
             {"2 -> 3  order, assumed",
              "op 3 writes memory that others can reach, which may be taken as a sign that all before it is done"});
}

TEST(Why, NamesWhatIsAssumed) {
  Why why;
  why.expect(
      4, 5,
      {"order, assumed", "op 5 is assumed to read and write everything", "its name does not tell its parameter types"});
  why.expect(5, 6, {"Ordered: op 6 depends on op 5"});
}

}  // namespace
}  // namespace nimble::analyzer
