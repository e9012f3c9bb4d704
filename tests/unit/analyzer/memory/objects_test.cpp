#include "analyzer/memory/objects.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "analyzer/memory/step_objects.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

struct Found {
  explicit Found(const test::TraceText& text) : file(text.read()), table(file.trace) {}
  std::vector<PointerWord> last() const {
    auto span = table.pointers(static_cast<std::uint32_t>(file.trace.calls.size()) - 1);
    return {span.begin(), span.end()};
  }
  TraceFile file;
  ObjectTable table;
};

test::TraceText begin(const std::string& params = "[[0,8],[8,8],[16,4]]") {
  test::TraceText text;
  text.image(true);
  text.function("k", params);
  text.stream();
  return text;
}

TEST(Objects, TheSameAddressAgainIsAnotherObject) {
  auto text = begin("[[0,8]]");
  text.alloc_async(0x1000, 256);
  text.launch(0, hex(0x1000));
  text.free_async(0x1000);
  text.alloc_async(0x1000, 256);
  text.launch(0, hex(0x1010));
  Found found(text);
  ASSERT_EQ(found.table.objects().size(), 2u);
  EXPECT_EQ(found.table.pointers(1)[0].object, 0u);
  ASSERT_EQ(found.last().size(), 1u);
  EXPECT_EQ(found.last()[0].object, 1u);
  EXPECT_EQ(found.last()[0].offset, 0x10u);
  EXPECT_EQ(found.table.objects()[0].death, 2u);
}

TEST(Objects, APointerPastTheEndBelongsToTheObjectThere) {
  auto text = begin("[[0,8],[8,8]]");
  text.alloc(0x1000, 0x100);
  text.alloc(0x1100, 0x100);
  text.launch(0, hex(0x1100) + hex(0x1200));
  Found found(text);
  ASSERT_EQ(found.last().size(), 1u);
  EXPECT_EQ(found.last()[0].object, 1u);
  EXPECT_EQ(found.last()[0].offset, 0u);
}

// The words of the last call that may lead to an object without pointing into it: "0:1", the byte and the object.
std::string unsure(const test::TraceText& text) {
  const Found found(text);
  std::string result;
  for (const PointerWord& word : found.table.unsure(static_cast<std::uint32_t>(found.file.trace.calls.size()) - 1))
    result += (result.empty() ? "" : " ") + std::to_string(word.at) + ":" + std::to_string(word.object);
  return result;
}

TEST(Objects, EndsOfWhatNothingElsePointsTo) {
  auto text = begin("[[0,8],[8,8]]");
  text.alloc(0x1000, 0x100);
  text.alloc(0x3000, 0x100);
  const auto of = [&](const std::string& words) {
    auto other = text;
    other.launch(0, words);
    return unsure(other);
  };
  EXPECT_EQ(of(hex(0x1100) + hex(0x3000)), "0:0");
  EXPECT_EQ(of(hex(0x3000) + hex(0x1100)), "8:0");
  EXPECT_EQ(of(hex(0x1000) + hex(0x1100)), "") << "from begin to end";
  EXPECT_EQ(of(hex(0x1101) + hex(0x10ff)), "");
  text.alloc(0x1100, 0x100);
  EXPECT_EQ(of(hex(0x1100) + hex(0x3000)), "") << "it is where something else begins";
}

// Arrays that are counted from one, or hang over.
TEST(Objects, WhatIsJustBeforeAnObjectMayStandForIt) {
  auto text = begin("[[0,8],[8,8]]");
  text.alloc(0x100000, 0x1000);
  text.alloc(0x101000, 0x1000);  // side by side
  text.alloc(0x103000, 0x1000);
  text.alloc(0x110000, 4);
  text.alloc(0x110010, 0x1000);
  const auto of = [&](std::uint64_t word, std::uint64_t other) {
    auto launch = text;
    launch.launch(0, hex(word) + hex(other));
    return unsure(launch);
  };
  EXPECT_EQ(of(0x102ffc, 0), "0:2");
  EXPECT_EQ(of(0, 0x102f01), "8:2");
  EXPECT_EQ(of(0x102f00, 0), "");
  EXPECT_EQ(of(0x102ffc, 0x103000), "0:2") << "the other pointer may do something else";
  EXPECT_EQ(of(0x100ffc, 0), "0:1") << "in the tail of another one";
  EXPECT_EQ(of(0x100f00, 0x101000), "") << "where an allocator's last block may begin";
  EXPECT_EQ(of(0x100800, 0x101ff0), "");
  EXPECT_EQ(of(0x110000, 0), "") << "where another one begins";
  EXPECT_EQ(of(0x110001, 0), "0:4");
  EXPECT_EQ(of(0x102000 - 4, 0), "") << "nothing begins there";
}

TEST(Objects, APointerMayHaveATagInItsUpperBits) {
  auto text = begin("[[0,8],[8,8]]");
  text.alloc(0x7f0000100000, 0x1000);
  const auto of = [&](std::uint64_t word) {
    auto launch = text;
    launch.launch(0, hex(7) + hex(word));
    return unsure(launch);
  };
  EXPECT_EQ(of(0x7f0000100010), "");
  EXPECT_EQ(of(0x00057f0000100010), "8:0");
  EXPECT_EQ(of(0x80007f0000100ff8), "8:0");
  EXPECT_EQ(of(0x00057f0000101010), "") << "nothing is there";
}

TEST(Objects, AnAddressMayStandAnywhereInAPackedClass) {
  auto text = begin("[[0,4],[4,20],[24,8],[32,4]]");
  text.alloc(0x7f0000100000, 0x1000);
  const auto of = [&](const std::string& words) {
    auto launch = text;
    launch.launch(0, words + hex(0x7f0000100000, 4));
    return unsure(launch);
  };
  const std::string address = hex(0x7f0000100010), none = hex(0, 4);
  EXPECT_EQ(of(none + none + address + none + none + hex(7)), "") << "where pointers stand";
  EXPECT_EQ(of(none + address + none + none + none + hex(7)), "4:0");
  EXPECT_EQ(of(none + none + none + address + none + hex(7)), "12:0");
  EXPECT_EQ(of(none + "00" + address + "000000" + none + none + hex(7)), "5:0");
  EXPECT_EQ(of(none + none + none + none + none + none + address), "") << "a pointer of its own";
  EXPECT_EQ(of(hex(0x100000, 4) + hex(0x7f00, 4) + none + none + none + none + hex(7)), "") << "two parameters";
}

TEST(Objects, ThatIsSoInGraphsToo) {
  auto text = begin("[[0,8],[8,12]]");
  text.alloc(0x7f0000100000, 0x1000);
  const std::string kernel = "[0,\"" + hex(0x7f0000100000) + hex(1, 4) + hex(0x7f0000100000) + "\"]";
  text.graph("[]", "[" + kernel + "," + kernel + "]");
  text.call("graph_launch", "\"stream\":0,\"graph\":0");
  EXPECT_EQ(unsure(text), "12:0 32:0");
}

TEST(Objects, WhatACopyCarriesCounts) {
  auto text = begin("[]");
  text.alloc(0x1000, 0x100);
  text.alloc(0x2000, 0x100);
  text.copy(0x1000, 0x7fff00000000, 32, 0, ",\"words\":[[0,8192],[8,8448],[24,4097]]");
  Found found(text);
  ASSERT_EQ(found.last().size(), 3u) << "the destination, and two words";
  EXPECT_EQ(found.last()[1].at, kAtWords);
  EXPECT_EQ(found.last()[1].object, 1u);
  EXPECT_EQ(found.last()[2].at, kAtWords + 2);
  EXPECT_EQ(found.last()[2].object, 0u);
  EXPECT_EQ(found.last()[2].offset, 1u);
}

TEST(Objects, AVariableIsOneObjectWhoeverTellsOfIt) {
  test::TraceText text;
  text.image(false);
  text.event("nimble.function",
             R"("id":0,"name":"f","image":0,"params":[],"proven":[],"globals":[["v",4096,16,"rw"]],"same_code":true)");
  text.stream();
  text.launch(0, "");
  text.alloc(4096, 16, "global");
  text.set(4096, 16);
  text.launch(0, "");
  Found found(text);
  ASSERT_EQ(found.table.objects().size(), 1u);
  EXPECT_EQ(found.table.objects()[0].memory, MemoryKind::global);
  for (std::uint32_t call = 0; call < 4; ++call) {
    ASSERT_EQ(found.table.pointers(call).size(), 1u) << call;
    EXPECT_EQ(found.table.pointers(call)[0].object, 0u);
  }
  EXPECT_EQ(found.last()[0].at, kAtGlobals);
}

TEST(Objects, WordsInsideStructsCountAndTailsDoNot) {
  auto text = begin("[[0,4],[8,24],[32,4]]");
  text.alloc(0x1000, 0x100);
  text.launch(0, hex(0x1000, 4) + hex(0, 4) + hex(0x1008) + hex(5) + hex(0x1010) + hex(0x1000, 4));
  Found found(text);
  ASSERT_EQ(found.last().size(), 2u);
  EXPECT_EQ(found.last()[0].at, 8u);
  EXPECT_EQ(found.last()[1].at, 24u);
}

TEST(Objects, ARegionMustLieInOneObject) {
  auto text = begin();
  text.alloc(0x1000, 0x100);
  text.alloc(0x1100, 0x100);
  text.copy(0x1000, 0x1100, 0x100);
  Found inside(text);
  EXPECT_EQ(inside.last().size(), 2u);
  text.copy(0x1080, 0x1100, 0x100);
  Found outside(text);
  ASSERT_EQ(outside.last().size(), 1u);
  EXPECT_EQ(outside.last()[0].at, kAtSrc);
  text.set(0x1000, 0x20, 0, ",\"height\":4,\"dpitch\":64");
  EXPECT_EQ(Found(text).last().size(), 1u);
  text.set(0x1000, 0x20, 0, ",\"height\":5,\"dpitch\":64");
  EXPECT_EQ(Found(text).last().size(), 0u);
}

TEST(Objects, AnAllocationOverLivingOnesEndsThem) {
  auto text = begin("[[0,8]]");
  text.alloc(0x1000, 0x100);
  text.alloc(0x2000, 0x100);
  text.alloc(0x1080, 0x2000);
  text.launch(0, hex(0x1000));
  Found found(text);
  EXPECT_EQ(found.table.objects()[0].death, 2u);
  EXPECT_EQ(found.table.objects()[1].death, 2u);
  EXPECT_TRUE(found.last().empty());
}

TEST(Objects, AContextTakesItsMemoryAlong) {
  auto text = begin("[[0,8]]");
  text.alloc(0x1000, 0x100);
  text.call("context_end", "");
  text.launch(0, hex(0x1000));
  EXPECT_TRUE(Found(text).last().empty());
}

TEST(StepObjects, AreLocalOnlyWhenTheStepMakesAndEndsThemInOneContextFromTheDefaultPool) {
  auto text = begin("[[0,8]]");
  text.stream();
  text.stream("non_blocking", 1);
  text.alloc_async(0x1000, 256);
  text.free_async(0x1000);        // local
  text.alloc_async(0x2000, 256);  // outlives the step
  text.alloc_async(0x3000, 256);
  text.free_async(0x3000, 1);  // local, though freed on another stream
  text.call("alloc_async", "\"stream\":0,\"addr\":16384,\"size\":256,\"own_pool\":true");
  text.free_async(0x4000);
  text.alloc_async(0x5000, 256);
  text.free_async(0x5000, 2);  // freed on a stream of another context
  Found found(text);
  std::vector<std::uint32_t> calls{0, 1, 2, 3, 4, 5, 6, 7, 8};
  StepObjects objects = objects_of_step(found.file.trace, found.table, calls);
  ASSERT_EQ(objects.objects.size(), 5u);
  EXPECT_TRUE(objects.objects[0].step_local);
  EXPECT_FALSE(objects.objects[1].step_local);
  EXPECT_TRUE(objects.objects[2].step_local);
  EXPECT_FALSE(objects.objects[3].step_local);
  EXPECT_FALSE(objects.objects[4].step_local);
}

TEST(Objects, AContextTakesOnlyItsOwnMemoryAlong) {
  const std::uint64_t bases[] = {0x1000, 0x2000, 0x3000, 0x4000};
  auto alive = [&](const std::string& end) {
    auto text = begin("[[0,8],[8,8],[16,8],[24,8]]");
    text.call("alloc", R"("addr":4096,"size":256,"memory":"device","context":0)");
    text.call("alloc", R"("addr":8192,"size":256,"memory":"pinned","context":1)");
    text.call("alloc", R"("addr":12288,"size":256,"memory":"mapped","context":0)");
    text.alloc_async(0x4000, 0x100);
    text.call("context_end", end);
    std::string params;
    for (std::uint64_t base : bases) params += hex(base);
    text.launch(0, params);
    std::string found;
    Found table(text);
    for (const PointerWord& pointer : table.last()) found += std::to_string(pointer.at / 8);
    return found;
  };
  EXPECT_EQ(alive("\"context\":0"), "123");
  EXPECT_EQ(alive("\"context\":1"), "023");
  EXPECT_EQ(alive("\"context\":2"), "0123");
  EXPECT_EQ(alive(""), "") << "which one ends is not known";
}

TEST(Objects, OneFreeMayEndSeveralMappings) {
  auto text = begin("[[0,8],[8,8],[16,8]]");
  for (std::uint64_t base : {0x1000, 0x2000, 0x3000}) text.alloc(base, 0x1000, "mapped");
  text.call("free", R"("addr":4096,"size":8192)");
  text.launch(0, hex(0x1000) + hex(0x2000) + hex(0x3000));
  Found found(text);
  ASSERT_EQ(found.last().size(), 1u);
  EXPECT_EQ(found.last()[0].at, 16u);
}

TEST(Objects, OfAnyTimeThatMeetARange) {
  std::mt19937 random(5);
  auto text = begin("[[0,8]]");
  std::vector<std::uint64_t> live;
  for (int i = 0; i < 300; ++i) {
    if (!live.empty() && random() % 3 == 0) {
      text.free_async(live.back());
      live.pop_back();
    } else {
      live.push_back(0x1000 + random() % 64 * 0x100);
      text.alloc_async(live.back(), 1 + random() % 0x900);
    }
  }
  const Found found(text);
  const auto& objects = found.table.objects();
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t first = 0xf00 + random() % 0x5000, last = first + 1 + random() % 0x200;
    std::vector<std::uint32_t> meeting, expected;
    found.table.find_meeting(first, last, meeting);
    std::ranges::sort(meeting);
    for (std::uint32_t object = 0; object < objects.size(); ++object)
      if (objects[object].base < last && objects[object].base + objects[object].size > first)
        expected.push_back(object);
    EXPECT_EQ(meeting, expected) << first << " to " << last;
  }
}

}  // namespace
}  // namespace nimble::analyzer
