#include "replayer/bundle/saved/bundle_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analyzer/base/errors.h"
#include "replayer/bundle/run/report.h"
#include "replayer/bundle/run/runs.h"
#include "replayer/bundle/saved/heap.h"

namespace nimble::bundle {
namespace {

using Json = nlohmann::json;

Json good() {
  return Json::parse(R"({"nimble_bundle":1,"step":{"first":5,"last":9,"ops":2},"images_of_ops":[0,null],
    "images":[{"file":"image-0.bin","bytes":10,"digest":"00000000000000ff"}],
    "objects":[{"address":1048576,"size":65540,"memory":"device","start":[0,1],"end":[null,1]},
               {"address":4194304,"size":4,"memory":"global","global":"counter","image":0,"start":[1]},
               {"address":1048576,"size":8,"memory":"stream_ordered"}],
    "sources":[{"op":0,"address":77,"bytes":4,"content":[1]}],"results":[],"hidden":["a note"],
    "pieces":[[0,65536,"0000000000000001"],[65536,4,"0000000000000002"]]})");
}

std::string error_of(const Json& manifest) {
  try {
    parse_manifest(manifest.dump(), "m.json");
    return "none";
  } catch (const analyzer::InputError& error) {
    return error.what();
  }
}

TEST(BundleReader, ReadsWhatIsThere) {
  const Bundle bundle = parse_manifest(good().dump(), "m.json");
  EXPECT_EQ(bundle.first_seq, 5u);
  EXPECT_EQ(bundle.last_seq, 9u);
  EXPECT_EQ(bundle.images_of_ops, (std::vector<std::uint32_t>{0, kNone}));
  EXPECT_EQ(bundle.images[0].digest, 255u);
  ASSERT_EQ(bundle.objects.size(), 3u);
  EXPECT_EQ(*bundle.objects[0].end, (BundleContent{kNone, 1}));
  EXPECT_EQ(bundle.objects[1].global, "counter");
  EXPECT_FALSE(bundle.objects[1].end);
  EXPECT_FALSE(bundle.objects[2].start);
  EXPECT_EQ(bundle.sources[0].content, BundleContent{1});
  EXPECT_EQ(bundle.hidden, std::vector<std::string>{"a note"});
  EXPECT_EQ(bundle.pieces[1].offset, 65536u);
}

TEST(BundleReader, NamesTheFieldThatIsWrong) {
  const struct {
    const char* at;
    Json value;
    const char* words;
  } cases[] = {
      {"/nimble_bundle", 3, "m.json: nimble_bundle: is 3; this nimble-replay reads version 1"},
      {"/step/last", 4, "step.last: must not come before"},
      {"/step/ops", 0, "step.ops: must not be 0"},
      {"/images_of_ops/0", 1, "images_of_ops: must be null, or an integer below 1"},
      {"/images/0/file", "../etc/passwd", "images[0].file: must be the plain name"},
      {"/images/0/file", ".hidden", "images[0].file: must be the plain name"},
      {"/images/0/file", "", "images[0].file: must be the plain name"},
      {"/images/0/digest", "xyz", "images[0].digest: must be 16 hexadecimal digits"},
      {"/objects/0/address", -1, "objects[0].address: must be an integer"},
      {"/objects/0/size", 0, "objects[0].size: must not be 0"},
      {"/objects/0/size", std::uint64_t{1} << 46, "objects[0].start: must have a piece for every 65536 bytes"},
      {"/objects/0/start/1", 0, "objects[0].start: names piece 0, which has another size"},
      {"/objects/0/start/1", 7, "objects[0].start: must be null, or an integer below 2"},
      {"/objects/0/memory", "heap", "objects[0].memory: is not a kind of memory"},
      {"/objects/1/address", 1048580, "objects: [1] overlaps another one at the step's start"},
      {"/objects/2/address", 4194304, "objects: [2] overlaps one of another kind of memory"},
      {"/objects/2/memory", "pinned", "objects: [2] overlaps one of another kind of memory"},
      {"/objects/1/image", nullptr, "objects[1].image: must be the variable's image"},
      {"/sources/0/op", 2, "sources[0].op: must be an integer from 0 to 1"},
      {"/sources/0/bytes", 5, "sources[0].content: names piece 1, which has another size"},
      {"/pieces/0", Json::array({0, 65537, "0000000000000001"}), "pieces: must be an integer from 0 to 65536"},
      {"/pieces/1", 5, "pieces: must be a list of [offset, bytes, digest]"},
      {"/hidden/0", 5, "hidden: must be text"},
      {"/objects", 5, "objects: must be a list"},
      {"/objects/0", 5, "objects: [0] must be an object"},
  };
  for (const auto& one : cases) {
    Json manifest = good();
    manifest[Json::json_pointer(one.at)] = one.value;
    EXPECT_NE(error_of(manifest).find(one.words), std::string::npos) << one.at << ": " << error_of(manifest);
  }
}

TEST(BundleReader, MissesNothing) {
  const Json whole = good();
  for (const auto& [key, value] : whole.items()) {
    Json manifest = whole;
    manifest.erase(key);
    EXPECT_NE(error_of(manifest).find(key), std::string::npos) << error_of(manifest);
  }
}

TraceCall pool_op(CallKind kind, std::uint32_t stream, std::uint64_t address, std::uint64_t size) {
  TraceCall call;
  call.kind = kind;
  call.stream = stream;
  call.address = address;
  call.size = size;
  return call;
}

constexpr CallKind kAlloc = CallKind::alloc_async, kFree = CallKind::free_async;

std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs_of(const std::vector<Handover>& handovers) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const Handover& handover : handovers) pairs.emplace_back(handover.from, handover.to);
  return pairs;
}

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

TEST(BundleRuns, MemoryThatGoesFromOneStreamToAnotherIsHandedOver) {
  EXPECT_EQ(pairs_of(handovers_of(
                {
                    pool_op(kFree, 0, 0x9000, 0),       // 0: older than the step
                    pool_op(kAlloc, 0, 0x1000, 0x800),  // 1
                    pool_op(kFree, 0, 0x1000, 0),       // 2
                    pool_op(kAlloc, 0, 0x1000, 0x100),  // 3: on its own stream
                    pool_op(kAlloc, 1, 0x1700, 0x400),  // 4: the end of what 2 released
                    pool_op(kAlloc, 1, 0x1800, 0x400),  // 5: after it
                    pool_op(kAlloc, 1, 0x8f00, 0x200),  // 6: around what 0 released
                },
                {})),
            (Pairs{{2, 4}, {0, 6}}));
}

TEST(BundleRuns, WhatIsOlderThanTheStepIsHandedOverAsFarAsItReaches) {
  BundleObject object;
  object.address = 0x9000;
  object.size = 0x1000;
  const std::vector<TraceCall> ops{
      pool_op(kFree, 0, 0x9000, 0),
      pool_op(kAlloc, 1, 0x9800, 0x100),
  };
  EXPECT_TRUE(handovers_of(ops, {object}).empty());  // allocated in the step
  object.start = BundleContent{kNone};
  EXPECT_EQ(pairs_of(handovers_of(ops, {object})), (Pairs{{0, 1}}));
}

TEST(BundleRuns, WhatWasTakenOverIsNotWaitedForAgain) {
  std::vector<TraceCall> ops;
  constexpr std::uint32_t kPairs = 100'000;
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    ops.push_back(pool_op(kAlloc, i % 2, 0x1000, 0x800));
    ops.push_back(pool_op(kFree, i % 2, 0x1000, 0));
  }
  // Each waits only for the previous one.
  EXPECT_EQ(handovers_of(ops, {}).size(), kPairs - 1);
}

TEST(BundleHeap, IsKnownByTheFunctionsThatTakeMemoryOfIt) {
  using namespace std::string_literals;
  const auto ptx = [](const std::string& declaration) { return ".version 9.0\n.target sm_90\n" + declaration; };
  EXPECT_TRUE(uses_heap(ptx(".extern .func  (.param .b64 func_retval0) malloc\n(\n.param .b64 malloc_param_0\n)\n;")));
  EXPECT_TRUE(
      uses_heap(ptx(".extern .func (.param .b32 r) vprintf (.param .b64 p);\n.extern .func free(.param .b64 p);")));
  EXPECT_FALSE(uses_heap(ptx(".extern .func (.param .b32 r) vprintf (.param .b64 p);")));
  EXPECT_FALSE(uses_heap(ptx(".visible .entry malloc_all(.param .b64 free)")));
  EXPECT_FALSE(uses_heap(ptx(".extern .func (.param .b64 r")));
  EXPECT_FALSE(uses_heap(ptx(".extern .func")));
  EXPECT_TRUE(uses_heap("\177ELF\0\0vprintf\0malloc\0"s));
  EXPECT_FALSE(uses_heap("\177ELF\0\0my_malloc\0malloc_all\0"s));
  EXPECT_FALSE(uses_heap(""));
}

TEST(BundleReport, PercentilesAreTheNearestRank) {
  const std::vector<double> values{5, 1, 4, 2, 3, 10, 9, 8, 7, 6};
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 0.5), 5);
  EXPECT_EQ(percentile(values, 0.9), 9);
  EXPECT_EQ(percentile(values, 0.99), 10);
  EXPECT_EQ(percentile({7}, 0.5), 7);
}

TEST(BundleReport, SaysWhereMemoryDiffersAndWhoWroteItLast) {
  ReplayReport report;
  report.simulated = true;
  WayResult way;
  way.name = way.key = "program order";
  way.runs = 2;
  way.difference = Difference{"object 3 (device, 4.0 KiB)", 12, 0x3f, 0, 5, 1, "op 7 (launch conv)"};
  report.ways.push_back(way);
  EXPECT_EQ(text_of(way),
            "program order: run 2: object 3 (device, 4.0 KiB), byte 12: recorded 3f, found 00, last written by op 7 "
            "(launch conv); 5 bytes differ in 1 object");
  const std::string text = text_of(report);
  EXPECT_NE(text.find("(simulated)"), std::string::npos);
  EXPECT_NE(text.find("NO"), std::string::npos);
  const Json json = Json::parse(json_of(report));
  EXPECT_EQ(json["ways"][0]["equal"], false);
  EXPECT_EQ(json["ways"][0]["difference"]["offset"], 12);
  EXPECT_EQ(json["ways"][0]["gpu_us"], nullptr);
}

TEST(BundleReport, AWayThatCouldNotBeRunIsNeitherEqualNorNot) {
  ReplayReport report;
  WayResult way;
  way.name = way.key = "cost";
  way.failure = "the driver returns CUDA_ERROR_LAUNCH_FAILED for op 3 (launch conv)";
  report.ways.push_back(way);
  EXPECT_NE(text_of(report).find("\nNo result: cost: the driver returns CUDA_ERROR_LAUNCH_FAILED for op 3"),
            std::string::npos);
  const Json json = Json::parse(json_of(report));
  EXPECT_EQ(json["ways"][0]["equal"], nullptr);
  EXPECT_EQ(json["ways"][0]["failure"], way.failure);
}

TEST(BundleReport, SpeedUpIsAgainstTheProgramsOrder) {
  ReplayReport report;
  for (const double us : {10.0, 4.0}) {
    WayResult way;
    way.times.push_back({us, 2 * us});
    report.ways.push_back(way);
  }
  const Json json = Json::parse(json_of(report));
  EXPECT_EQ(json["ways"][0]["speed_up"], 1.0);
  EXPECT_EQ(json["ways"][1]["speed_up"], 2.5);
  EXPECT_EQ(json["ways"][1]["host_us"]["p99"], 8.0);
}

}  // namespace
}  // namespace nimble::bundle
