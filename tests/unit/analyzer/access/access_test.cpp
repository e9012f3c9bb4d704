#include "analyzer/access/access.h"

#include <gtest/gtest.h>

#include "analyzer/access/sources/exact.h"
#include "analyzer/access/sources/graph.h"
#include "analyzer/access/sources/rules.h"
#include "analyzer/access/sources/signature.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

constexpr std::uint64_t kA = 0x100000, kB = 0x200000, kSize = 0x1000;

// A trace with two objects and one launch; what the sources make of the launch.
struct Asked {
  StepAccesses accesses;
  StepObjects objects;

  const OpAccesses& op() const { return accesses.ops[0]; }
  std::string why() const { return op().why == kNone ? "" : accesses.reasons[op().why]; }
  // "0r 1rw": object and what is done with it.
  std::string text() const {
    std::string result;
    for (const Access& access : accesses.of(0))
      result += (result.empty() ? "" : " ") + std::to_string(access.object) + (access.reads ? "r" : "") +
                (access.writes ? "w" : "");
    return result;
  }
};

Asked ask(const test::TraceText& text, const std::string& rules_text = "") {
  TraceFile file = text.read();
  ObjectTable table(file.trace);
  std::vector<std::uint32_t> calls{static_cast<std::uint32_t>(file.trace.calls.size()) - 1};
  Asked result;
  result.objects = objects_of_step(file.trace, table, calls);
  Rules rules;
  if (!rules_text.empty()) {
    test::TempFile rules_file("{\"nimble_rules\":2,\"rules\":[" + rules_text + "]}");
    rules.read(rules_file.path());
  }
  PointersInMemory held(file.trace, table, {calls, {}, {}, {}}, rules);
  std::vector<std::unique_ptr<AccessSource>> sources;
  sources.push_back(std::make_unique<ExactAccess>());
  sources.push_back(std::make_unique<RulesAccess>(file.trace, rules, held));
  sources.push_back(std::make_unique<SignatureAccess>(file.trace, held));
  sources.push_back(std::make_unique<GraphAccess>(std::vector{sources[1].get(), sources[2].get()}));
  result.accesses = infer_accesses(file.trace, table, result.objects, calls, sources, &held);
  return result;
}

test::TraceText begin(const std::string& name, const std::string& params, bool self_contained = true) {
  test::TraceText text;
  text.image(self_contained);
  text.function(name, params);
  text.stream();
  text.alloc(kA, kSize);
  text.alloc(kB, kSize);
  return text;
}

Asked launch(const std::string& name, const std::string& params, const std::string& bytes,
             const std::string& rules = "", bool self_contained = true, const std::string& more = "") {
  auto text = begin(name, params, self_contained);
  text.launch(0, bytes, 0, more);
  return ask(text, rules);
}

constexpr const char* kTwo = "[[0,8],[8,8]]";

TEST(SignatureAccess, ConstPointersAreReadOthersAreReadAndWritten) {
  Asked asked = launch("_Z1fPfPKfi", "[[0,8],[8,8],[16,4]]", hex(kA) + hex(kB) + hex(7, 4));
  EXPECT_EQ(asked.op().evidence, Evidence::declared);
  EXPECT_EQ(asked.text(), "0rw 1r");
  EXPECT_TRUE(asked.accesses.of(0)[0].whole);
  EXPECT_EQ(asked.accesses.of(0)[0].rect.end(), kSize);
}

TEST(SignatureAccess, TwoPointersIntoOneObjectAreOneAccess) {
  EXPECT_EQ(launch("_Z1fPfPKf", kTwo, hex(kA + 64) + hex(kA)).text(), "0rw");
}

TEST(SignatureAccess, NullIsNoAccess) { EXPECT_EQ(launch("_Z1fPfPKf", kTwo, hex(0) + hex(kB)).text(), "0r"); }

TEST(SignatureAccess, AScalarThatHitsAnObjectCountsAsAPointer) {
  EXPECT_EQ(launch("_Z1fPKfl", kTwo, hex(kA) + hex(kB)).text(), "0r 1rw");
}

TEST(SignatureAccess, AStructIsReadAndWrittenWhereItPoints) {
  Asked asked = launch("_Z1f4Nodei", "[[0,16],[16,4]]", hex(kA) + hex(3) + hex(7, 4));
  EXPECT_EQ(asked.text(), "0rw");
  // A class may hold anything: the kernel may keep a pointer to B in A, and follow it the next time.
  asked = launch("_Z1f4NodePKf", "[[0,16],[16,8]]", hex(kA) + hex(3) + hex(kB));
  EXPECT_EQ(asked.text(), "0rw 1rw");
  EXPECT_TRUE(asked.accesses.carries);
  EXPECT_EQ(launch("_Z1fSt5arrayIPcLm2EE", "[[0,16]]", hex(kA) + hex(kB)).text(), "0rw 1rw") << "an array of numbers";
}

TEST(SignatureAccess, DoesNotSpeakWhereItCannotKnow) {
  auto why = [](const Asked& asked) {
    EXPECT_EQ(asked.op().role, OpRole::barrier);
    EXPECT_EQ(asked.op().evidence, Evidence::assumed);
    return asked.why();
  };
  std::string both = hex(kA) + hex(kB);
  EXPECT_EQ(why(launch("f", kTwo, both)), "its name does not tell its parameter types");
  EXPECT_EQ(why(launch("_Z1fPfPKf", kTwo, both, "", false)), "its image is not self-contained");
  EXPECT_EQ(why(launch("_Z1fPf", kTwo, both)), "its name tells 1 parameters, it takes 2");
  EXPECT_EQ(why(launch("_Z1fPfi", kTwo, both)), "parameter 1 has 8 bytes, its type says 4");
  EXPECT_NE(why(launch("_Z1fPvPKf", kTwo, both)).find("pointer to void"), std::string::npos);
  EXPECT_NE(why(launch("_Z1fPPfPKf", kTwo, both)).find("pointer to pointers"), std::string::npos);
  EXPECT_NE(why(launch("_Z1fPlPKf", kTwo, both)).find("8-byte integers"), std::string::npos);
  EXPECT_NE(why(launch("_Z1fP4NodePKf", kTwo, both)).find("pointer to a class"), std::string::npos);
  EXPECT_NE(why(launch("_Z1fRfPKf", kTwo, both)).find("reference"), std::string::npos);
  EXPECT_NE(why(launch("_Z1fPfPKf", kTwo, hex(kA) + hex(0x300000))).find("does not point into an allocation"),
            std::string::npos);
  EXPECT_NE(why(launch("_Z1fPfPKf", kTwo, hex(kA) + hex(kB + kSize))).find("does not point into an allocation"),
            std::string::npos);
  EXPECT_NE(why(launch("_Z1f4Node", "[[0,16]]", hex(kA) + hex(0x7f0000300000))).find("class by value"),
            std::string::npos);
  EXPECT_EQ(why(launch("_Z1fPfPKf", "null", "")), "its parameter layout is unknown");
  EXPECT_EQ(why(launch("_Z1fPfPKf", kTwo, "")), "its parameters were not recorded");
  EXPECT_EQ(why(launch("_Z1fPfPKf", kTwo, both, "", true, ",\"coop\":true")), "it is a cooperative launch");
  EXPECT_EQ(why(launch("_Z1fPfPKf", kTwo, both, "", true, ",\"attrs\":[7]")), "it was launched with attributes");
  EXPECT_EQ(why(launch("_Z1fPfPKf", kTwo, both, "", true, ",\"attrs\":[4,6]")), "it was launched with attributes");
  EXPECT_EQ(launch("_Z1fPfPKf", kTwo, both, "", true, ",\"attrs\":[4]").text(), "0rw 1r") << "in clusters";
}

TEST(SignatureAccess, DoesNotSpeakWhereTheCodeFollowsMemoryToWhichItDoesNotLead) {
  const auto follows = [](const std::string& name, const std::string& params, const std::string& words) {
    test::TraceText text;
    text.image(true);
    text.function(name, params, 0, ",\"why_not_proven\":\"it follows\",\"follows_memory\":true");
    text.stream();
    text.alloc(kA, kSize);
    text.alloc(kB, kSize);
    text.launch(0, words);
    return ask(text);
  };
  const Asked bytes = follows("_Z1fPfPKh", kTwo, hex(kA) + hex(kB));
  EXPECT_EQ(bytes.op().role, OpRole::barrier);
  EXPECT_EQ(bytes.why(), "its code may follow addresses in memory, to which its signature does not lead");
  // Of a class it is known what it may lead to.
  EXPECT_EQ(follows("_Z1f4NodePKf", "[[0,16],[16,8]]", hex(kA) + hex(3) + hex(kB)).text(), "0rw 1rw");
}

TEST(SignatureAccess, WhatCouldBeAnAddressInAStructCountsAsOne) {
  const auto role = [](const std::string& words) {
    return launch("_Z1fPKf5Sizes", "[[0,8],[8,16]]", hex(kA) + words).op().role;
  };
  EXPECT_EQ(role(hex(64, 4) + hex(0, 4) + hex(8, 4) + hex(0, 4)), OpRole::accesses);
  EXPECT_EQ(role(hex(0x3f800000, 4) + hex(0x3f800000, 4) + hex(0)), OpRole::accesses) << "two floats";
  // Freed memory, memory beside an object, the host's, and two sizes that happen to look like an address.
  for (std::uint64_t word :
       {std::uint64_t{0x300000}, kB + kSize, std::uint64_t{0x7ffc12345678}, std::uint64_t{0x4000000010}})
    EXPECT_EQ(role(hex(word) + hex(0)), OpRole::barrier) << word;
}

TEST(SignatureAccess, ADescriptorHoldsNoAddressesWhateverIsInIt) {
  const auto role = [](const std::string& words) {
    return launch("_Z1fPKf17cudnnTensorStruct", "[[0,8],[8,16]]", hex(kA) + words).op().role;
  };
  EXPECT_EQ(role(hex(64) + hex(8)), OpRole::accesses);
  EXPECT_EQ(role(hex(0x7ffc12345678) + hex(0x4000000010)), OpRole::accesses);
}

TEST(SignatureAccess, WordsThatLeadNowhereAreNoAddresses) {
  const auto role = [](const char* name, const std::string& nowhere) {
    const std::string words = hex(0x4000000010) + hex(0x7ffc12345678);
    return launch(name, "[[0,8],[8,16]]", hex(kA) + words, "", true, ",\"nowhere\":" + nowhere).op().role;
  };
  EXPECT_EQ(role("_Z1fPKf5Sizes", "[8,16]"), OpRole::accesses);
  EXPECT_EQ(role("_Z1fPKf5Sizes", "[8]"), OpRole::barrier) << "the other one may lead somewhere";
  EXPECT_EQ(role("_Z1fPKf5Sizes", "[]"), OpRole::barrier);
  // A pointer to the host's own memory, which the kernel cannot follow.
  const auto pointer = [](const std::string& nowhere) {
    return launch("_Z1fPfPKf", kTwo, hex(kA) + hex(0x7ffc12345678), "", true, ",\"nowhere\":" + nowhere);
  };
  EXPECT_EQ(pointer("[8]").text(), "0rw");
  EXPECT_EQ(pointer("[]").op().role, OpRole::barrier);
}

// From where memory ends a kernel may go backwards.
TEST(SignatureAccess, AnEndIsNoWordThatLeadsNowhere) {
  const auto ends = [](const std::string& params, const std::string& words, const std::string& nowhere) {
    const bool two = params == kTwo;
    return launch(two ? "_Z1fPfPKf" : "_Z1fPfPKfS1_", params, words, "", true, ",\"nowhere\":" + nowhere).op().role;
  };
  EXPECT_EQ(ends(kTwo, hex(kA) + hex(kB + kSize), "[8]"), OpRole::barrier);
  EXPECT_EQ(ends(kTwo, hex(kA) + hex(kB + kSize + 8), "[8]"), OpRole::accesses);
  EXPECT_EQ(ends("[[0,8],[8,8],[16,8]]", hex(kA) + hex(kB) + hex(kB + kSize), "[16]"), OpRole::accesses);
  const Asked iterator = launch("_Z1fIN6thrust16reverse_iteratorIPfEEEvPfPKf", kTwo, hex(kA) + hex(kB));
  EXPECT_EQ(iterator.op().role, OpRole::barrier);
  EXPECT_NE(iterator.why().find("a reverse iterator"), std::string::npos);
}

// One-based arrays, and what begins with a halo.
TEST(SignatureAccess, WhatIsJustBeforeMemoryIsNoWordThatLeadsNowhere) {
  const auto role = [](std::uint64_t word, std::uint64_t other) {
    return launch("_Z1fPfPKf", kTwo, hex(word) + hex(other), "", true, ",\"nowhere\":[0,8]").op().role;
  };
  EXPECT_EQ(role(kA - 4, kB), OpRole::barrier);
  EXPECT_EQ(role(kB, kA - 4), OpRole::barrier);
  EXPECT_EQ(role(kA - 4, kA), OpRole::barrier);
  EXPECT_EQ(role(kA - 0x100, kB), OpRole::accesses);
  const auto beside = [](const char* name, const char* params, const std::string& words) {
    auto text = begin(name, params);
    text.alloc(kA + kSize, kSize);
    text.launch(0, words);
    return ask(text);
  };
  EXPECT_EQ(beside("_Z1fPfPKf", kTwo, hex(kA + kSize - 4) + hex(kB)).op().role, OpRole::barrier);
  EXPECT_EQ(beside("_Z1fPfPKf", kTwo, hex(kA + kSize - 0x100) + hex(kA + kSize)).text(), "0rw 1r");
  EXPECT_EQ(beside("_Z1fPfPKf", kTwo, hex(kA + kSize) + hex(kA)).text(), "0rw 1r");
  EXPECT_EQ(beside("_Z1fPKfl", kTwo, hex(kA) + hex(kA + kSize - 4)).op().role, OpRole::barrier) << "a number";
  EXPECT_EQ(beside("_Z1f4Nodei", "[[0,16],[16,4]]", hex(3) + hex(kA + kSize - 4) + hex(7, 4)).op().role,
            OpRole::barrier);
}

TEST(SignatureAccess, APackedClassMayHoldAddressesAnywhere) {
  const auto role = [](const std::string& bytes, const std::string& rules = "") {
    return launch("_Z1f6PackedPf", "[[0,20],[24,8]]", bytes + hex(0, 4) + hex(kB), rules, true, ",\"nowhere\":[0,8]")
        .op()
        .role;
  };
  EXPECT_EQ(role(hex(kA) + hex(7) + hex(7, 4)), OpRole::accesses);
  EXPECT_EQ(role(hex(7, 4) + hex(kA) + hex(7)), OpRole::barrier);
  EXPECT_EQ(role(hex(7, 4) + hex(7) + hex(kA)), OpRole::barrier);
  EXPECT_EQ(role("07" + hex(kA) + hex(7) + "000000"), OpRole::barrier);
  const auto rule = [](const char* mode) {
    return R"({"kernel":"_Z1f6PackedPf","params":[")" + std::string(mode) + R"(","out"]})";
  };
  EXPECT_EQ(role(hex(7, 4) + hex(kA) + hex(7), rule("scan")), OpRole::barrier);
  EXPECT_EQ(role(hex(7, 4) + hex(kA) + hex(7), rule("value")), OpRole::accesses) << "a rule knows better";
}

TEST(SignatureAccess, DoesNotSpeakInATraceWithHiddenWaysToMemory) {
  auto text = begin("_Z1fPfPKf", kTwo);
  text.call("hidden", "\"note\":\"a texture object\"");
  text.launch(0, hex(kA) + hex(kB));
  EXPECT_NE(ask(text).why().find("a texture object"), std::string::npos);
}

TEST(RulesAccess, IsStrongerThanTheSignature) {
  std::string both = hex(kA) + hex(kB);
  EXPECT_EQ(launch("_Z1fPfPKf", kTwo, both, R"({"kernel":"_Z1f.*","params":["in","out"]})").text(), "0r 1rw");
  EXPECT_EQ(launch("_Z1fPfPKf", kTwo, both, R"({"kernel":"f\\(.*","params":["in","value"]})").text(), "0r");
  EXPECT_EQ(launch("f", kTwo, both, R"({"kernel":"f","params":["inout","in"]})", false).text(), "0rw 1r");
}

TEST(RulesAccess, DoesNotSpeakForUnknownMemoryOrOddLaunches) {
  std::string rule = R"({"kernel":"f","params":["in","out"]})";
  Asked stray = launch("f", kTwo, hex(kA) + hex(0x900000), rule);
  EXPECT_EQ(stray.op().role, OpRole::barrier);
  EXPECT_NE(stray.why().find("rule \"f\": parameter 1 does not point into an allocation"), std::string::npos);
  EXPECT_EQ(launch("f", kTwo, hex(kA) + hex(kB), rule, true, ",\"attrs\":[6]").op().role, OpRole::barrier);
}

TEST(RulesAccess, AValueIsNoPointer) {
  Asked asked = launch("f", kTwo, hex(kA) + hex(kB), R"({"kernel":"f","params":["out","value"]})");
  EXPECT_EQ(asked.accesses.no_pointers[0], (std::vector<std::uint32_t>{8}));
}

// PyTorch's lists of tensors: pointers, a table of blocks says how many are in use; after them garbage.
TEST(RulesAccess, AListOfPointersIsAsLongAsTheLaunchSays) {
  const std::string rule = R"({"kernel": "f", "params": [{"words": [[0, {"largest": [24, 1]}, "in"]]}, "out"]})";
  const char* layout = "[[0,32],[32,8]]";
  const auto ask = [&](const std::string& list, const std::string& table, const std::string& more = "") {
    return launch("f", layout, list + table + hex(kA), rule, true, more);
  };
  const std::string one_block = hex(0), three_blocks = hex(1 << 8);  // blocks 0 to 7 work on tensors 0, 1, 0, 0 ...
  Asked one = ask(hex(kA) + hex(kB) + hex(0x7ffc00001234), one_block);
  EXPECT_EQ(one.text(), "0rw");
  EXPECT_TRUE(one.accesses.pinned[0].shape);
  ASSERT_EQ(one.accesses.pinned[0].params.all().size(), 1u);
  EXPECT_EQ(one.accesses.pinned[0].params.all()[0], (std::pair<std::uint32_t, std::uint32_t>{24, 8}));
  EXPECT_EQ(one.accesses.no_pointers[0], (std::vector<std::uint32_t>{8, 16, 24}));
  EXPECT_EQ(ask(hex(kA) + hex(kB) + hex(0x7ffc00001234), three_blocks).text(), "0rw 1r");
  EXPECT_EQ(ask(hex(kB) + hex(0x7ffc00001234) + hex(0), three_blocks).op().role, OpRole::barrier);
  EXPECT_NE(ask(hex(kB) + hex(0) + hex(0), hex(200)).why().find("has no room"), std::string::npos);
}

TEST(RulesAccess, ARuleMayLeaveItToTheCodeThatThereIsNothingElse) {
  const std::string rule = R"({"kernel": "f", "params": ["out", "in"], "self_contained": true})";
  EXPECT_EQ(launch("f", kTwo, hex(kA) + hex(kB), rule).text(), "0rw 1r");
  EXPECT_EQ(launch("f", kTwo, hex(kA) + hex(kB), rule, false).op().role, OpRole::barrier);
}

TEST(RulesAccess, AScannedStructureIsReadAndWrittenWhereItPoints) {
  const std::string rule = R"({"kernel": "f", "params": ["in"], "more": "scan"})";
  EXPECT_EQ(launch("f", "[[0,8],[8,16]]", hex(kA) + hex(7) + hex(kB), rule).text(), "0r 1rw");
  EXPECT_EQ(launch("f", "[[0,8],[8,16]]", hex(kA) + hex(0x7ffc00001234) + hex(kB), rule).op().role, OpRole::barrier);
}

// PyTorch's kernels for non-contiguous tensors: garbage, the pointers, and a function object.
TEST(RulesAccess, WordsOfAStructureMayBeScanned) {
  const std::string rule = R"({"kernel": "f", "params": [{"words": [[8, 1, "in"], [16, "rest", "scan"]]}, "value"]})";
  const auto ask = [&](std::uint64_t rubbish, std::uint64_t held) {
    return launch("f", "[[0,32],[32,8]]", hex(rubbish) + hex(kA) + hex(held) + hex(5) + hex(0), rule);
  };
  EXPECT_EQ(ask(0x7ffc00001234, 7).text(), "0r");
  EXPECT_EQ(ask(kB, 7).text(), "1r") << "object 0 is named by a pointer of before";
  EXPECT_EQ(ask(0, kB).text(), "0r 1rw");
  EXPECT_EQ(ask(0, 0x7ffc00001234).op().role, OpRole::barrier);
  EXPECT_EQ(ask(0, 7).accesses.no_pointers[0], (std::vector<std::uint32_t>{0, 32}));
}

TEST(ExactAccess, CopiesAndSetsTouchTheirRegions) {
  auto text = begin("f", "[]");
  text.copy(kA + 16, kB + 32, 8, 0, ",\"height\":3,\"dpitch\":64,\"spitch\":8");
  Asked asked = ask(text);
  ASSERT_EQ(asked.text(), "0w 1r");
  EXPECT_EQ(asked.accesses.of(0)[0].rect, (ByteRect{16, 8, 64, 3}));
  EXPECT_EQ(asked.accesses.of(0)[1].rect, (ByteRect{32, 24, 0, 1})) << "rows without gaps are one range";
  EXPECT_EQ(asked.op().evidence, Evidence::exact);
  text.set(kB, 100);
  EXPECT_EQ(ask(text).text(), "0w");
}

TEST(ExactAccess, UnknownMemoryOrdersEverything) {
  auto text = begin("f", "[]");
  text.copy(kA, 0x7fff00000000, 64);
  EXPECT_EQ(ask(text).op().role, OpRole::barrier);
  text.copy(0x7fff00000000, kA, 64);
  EXPECT_EQ(ask(text).op().role, OpRole::barrier);
  text.copy(kA + kSize - 8, kB, 64);
  EXPECT_EQ(ask(text).op().role, OpRole::barrier);
  for (const char* kind : {"host_function", "graph_launch", "opaque"}) {
    text.call(kind, "\"stream\":0");
    EXPECT_EQ(ask(text).op().role, OpRole::barrier) << kind;
  }
}

std::string listed(std::uint64_t address, std::uint64_t bytes, const std::string& mode) {
  return "[" + std::to_string(address) + "," + std::to_string(bytes) + ",\"" + mode + "\"]";
}

TEST(ExactAccess, AListSaysWhatAnOpTouches) {
  auto text = begin("f", "[]");
  text.call("opaque", "\"stream\":0,\"accesses\":[" + listed(kA + 16, 32, "w") + "," + listed(kB + 8, 8, "r") + "," +
                          listed(kA, 16, "r") + "]");
  Asked asked = ask(text);
  EXPECT_EQ(asked.text(), "0w 1r 0r");
  EXPECT_EQ(asked.op().evidence, Evidence::exact);
  EXPECT_EQ(asked.accesses.of(0)[0].rect, (ByteRect{16, 32, 0, 1}));
  EXPECT_EQ(asked.accesses.of(0)[1].rect, (ByteRect{8, 8, 0, 1}));
  // Without a size it is the whole allocation, wherever in it the address lies.
  text.call("opaque", "\"stream\":0,\"accesses\":[" + listed(kA + 100, 0, "rw") + "]");
  asked = ask(text);
  EXPECT_EQ(asked.text(), "0rw");
  EXPECT_EQ(asked.accesses.of(0)[0].rect, (ByteRect{0, kSize, 0, 1}));
  // An empty list is a list: it touches nothing.
  text.call("opaque", "\"stream\":0,\"accesses\":[]");
  EXPECT_EQ(ask(text).op().role, OpRole::accesses);
}

TEST(ExactAccess, AListThatIsNotWhollyKnownOrdersEverything) {
  auto text = begin("f", "[]");
  for (const std::string& stray :
       {listed(0x900000, 8, "r"), listed(kA + kSize - 8, 16, "w"), listed(0x900000, 0, "rw")}) {
    text.call("opaque", "\"stream\":0,\"accesses\":[" + listed(kA, 8, "r") + "," + stray + "]");
    Asked asked = ask(text);
    EXPECT_EQ(asked.op().role, OpRole::barrier) << stray;
    EXPECT_EQ(asked.text(), "") << stray;
    EXPECT_NE(asked.why().find("not in an allocation that the trace knows"), std::string::npos);
  }
}

TEST(GraphAccess, AGraphTouchesWhatItsNodesTouch) {
  auto text = begin("_Z1fPfPKfi", "[[0,8],[8,8],[16,4]]");
  text.alloc(0x300000, kSize);
  text.graph("[" + listed(0x300000, 64, "w") + "]");
  text.call("graph_launch", "\"stream\":0,\"graph\":0");
  Asked asked = ask(text);
  EXPECT_EQ(asked.text(), "0w");
  EXPECT_EQ(asked.op().evidence, Evidence::exact);

  // Two kernels: what their signatures declare.
  const std::string params = hex(kA) + hex(kB) + hex(7, 4), other = hex(0x300000 + 64) + hex(kA) + hex(7, 4);
  text.graph("[" + listed(0x300000, 64, "w") + "]", "[[0,\"" + params + "\"],[0,\"" + other + "\"]]");
  text.call("graph_launch", "\"stream\":0,\"graph\":1");
  asked = ask(text);
  EXPECT_EQ(asked.op().evidence, Evidence::declared);
  EXPECT_EQ(asked.text(), "0w 1rw 2r 0rw");
  EXPECT_EQ(asked.objects.objects.size(), 3u);
}

TEST(GraphAccess, OneNodeThatIsNotKnownOrdersEverything) {
  auto text = begin("_Z1fPfPKfi", "[[0,8],[8,8],[16,4]]");
  const std::string list = "[" + listed(kA, 64, "w") + "]";
  text.graph(list, "[[0,\"" + hex(kA) + hex(0x900000) + hex(7, 4) + "\"]]");
  text.call("graph_launch", "\"stream\":0,\"graph\":0");
  Asked asked = ask(text);
  EXPECT_EQ(asked.op().role, OpRole::barrier);
  EXPECT_EQ(asked.text(), "");
  EXPECT_NE(asked.why().find("one of its kernels: parameter 1 does not point into an allocation"), std::string::npos);
  text.graph("[]", "[]", "it holds a host function");
  text.call("graph_launch", "\"stream\":0,\"graph\":1");
  EXPECT_EQ(ask(text).why(), "it holds a host function");
  text.call("graph_launch", "\"stream\":0");
  EXPECT_EQ(ask(text).why(), "the graph's nodes are not in the trace");
  // Its kernels are judged as any: not where the program has hidden something.
  text.graph(list, "[[0,\"" + hex(kA) + hex(kB) + hex(7, 4) + "\"]]");
  text.call("graph_launch", "\"stream\":0,\"graph\":2");
  EXPECT_EQ(ask(text).op().evidence, Evidence::declared);
  text.alloc(0x900000, kSize, "external");
  text.call("graph_launch", "\"stream\":0,\"graph\":2");
  EXPECT_EQ(ask(text).op().role, OpRole::barrier);
}

}  // namespace
}  // namespace nimble::analyzer
