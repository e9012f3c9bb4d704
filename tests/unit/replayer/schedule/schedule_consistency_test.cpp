#include "replayer/schedule/schedule_consistency.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/step_paths.h"
#include "tests/unit/replayer/schedule/schedule_json.h"

namespace nimble {
namespace {

// Objects that the program has one after the other may share bytes where both orders let one be done with first.
TEST(ScheduleReader, OnSeveralStreamsMemoryIsSharedOnlyWhereTheProgramHasAnOrder) {
  // Two objects at the same place, each allocated, set and freed; the graph sets one before the other.
  const auto sharing = [](std::uint32_t second_stream, bool waits, bool second_used = true) {
    Json json = good();
    json["streams"] = Json::parse(R"([{"kind": "blocking", "forked": true}, {"kind": "blocking", "forked": true}])");
    Json ops = Json::array();
    const auto plan = [&](const char* kind, int object, std::uint32_t stream) {
      ops.push_back({{"kind", kind},
                     {"submit", "plan"},
                     {"segment", nullptr},
                     {"lane", 0},
                     {"stream", stream},
                     {"object", object},
                     {"size", object == 1 ? 64 : 100}});
    };
    const auto set = [&](int object, std::uint32_t stream) {
      Json op = good()["ops"][4];
      op["dst"]["object"] = object;
      op["dst_pitch"] = 16;
      op["height"] = 1;
      op["stream"] = stream;
      ops.push_back(op);
    };
    plan("alloc_async", 1, 0);
    set(1, 0);
    plan("free_async", 1, 0);
    ops.push_back({{"kind", "event_record"}, {"submit", "graph"}, {"segment", 0}, {"lane", 0}, {"stream", 0}});
    if (waits)
      ops.push_back(
          {{"kind", "event_wait"}, {"submit", "order"}, {"segment", 0}, {"lane", 0}, {"stream", 1}, {"record", 3}});
    plan("alloc_async", 2, second_stream);
    if (second_used) set(2, second_stream);
    plan("free_async", 2, second_stream);
    ops.push_back({{"kind", "host_function"}, {"submit", "direct"}, {"segment", nullptr}, {"lane", 0}, {"stream", 1}});
    const int set_2 = waits ? 6 : 5;
    json["ops"] = ops;
    json["objects"][2]["plan_offset"] = 0;
    json["segments"][0] = {{"first", 1},
                           {"last", second_used ? set_2
                                    : waits     ? 4
                                                : 3},
                           {"lanes", 1},
                           {"synchronizations", 0},
                           {"edges", second_used ? Json{{1, 3}, {1, set_2}} : Json{{1, 3}}},
                           {"order", second_used ? Json{1, 3, set_2} : Json{1, 3}}};
    return error_of(json);
  };
  EXPECT_EQ(sharing(0, false), "");
  EXPECT_NE(sharing(1, false).find("objects[2]"), std::string::npos);
  EXPECT_EQ(sharing(1, true), "");
  EXPECT_NE(sharing(1, false, false).find("objects[2]"), std::string::npos) << "a diverging step may use it yet";
  EXPECT_EQ(sharing(1, true, false), "");
}

// Ops 2 and 3 use object 1, which is freed before object 2 is allocated, which op 6 sets.
Json sharing() {
  Json json = good();
  Json& ops = json["ops"];
  const Json alloc = ops[1], free = ops[6], set = ops[4];
  ops[1] = ops[5];  // a record, beside
  ops[4] = free;
  ops[5] = alloc;
  ops[6] = set;
  json["segments"][0] = {
      {"first", 1},           {"last", 6}, {"lanes", 1}, {"synchronizations", 0}, {"edges", {{2, 3}, {3, 6}}},
      {"order", {1, 2, 3, 6}}};
  json["objects"][2]["plan_offset"] = 0;
  json["arena_bytes"] = 512;
  return json;
}

TEST(ScheduleReader, ObjectsMayShareBytesOneAfterTheOther) {
  EXPECT_EQ(error_of(sharing()), "");
  Json unordered = sharing();
  unordered["segments"][0]["edges"] = {{2, 3}};
  EXPECT_NE(error_of(unordered).find("objects[2]: overlaps another in the memory plan whose uses are not ordered"),
            std::string::npos)
      << error_of(unordered);
  unordered["segments"][0]["edges"] = {{2, 3}, {2, 6}};  // not after the last use
  EXPECT_NE(error_of(unordered), "");
  unordered["segments"][0]["edges"] = {{2, 3}, {1, 6}};
  EXPECT_NE(error_of(unordered), "");
  Json apart = unordered;
  apart["objects"][2]["plan_offset"] = 512;
  apart["arena_bytes"] = 1024;
  EXPECT_EQ(error_of(apart), "");
  Json alive = sharing();
  std::swap(alive["ops"][4], alive["ops"][5]);
  EXPECT_NE(error_of(alive).find("objects[2]: overlaps another in the memory plan that is live"), std::string::npos)
      << error_of(alive);
}

// Two kinds of step, which diverge after an allocation and a copy.
Json kinds() {
  return Json::parse(R"json({
    "nimble_schedule": 6, "policy": "nimble", "trace_digest": "00",
    "streams": [{"kind": "blocking", "forked": true}],
    "functions": [],
    "objects": [{"memory": "pinned", "size": 64, "step_local": false, "plan_offset": 0},
                {"memory": "stream_ordered", "size": 64, "step_local": true, "plan_offset": 0},
                {"memory": "stream_ordered", "size": 64, "step_local": true, "plan_offset": 512}],
    "ops": [
      {"kind": "alloc_async", "submit": "plan", "segment": null, "lane": 0, "object": 1, "size": 64},
      {"kind": "copy", "submit": "graph", "segment": 0, "lane": 0, "dst": {"object": 1, "offset": 0, "fixed": false},
       "src": {"object": 0, "offset": 16, "fixed": true}, "dst_pitch": 0, "src_pitch": 0, "width": 48, "height": 1},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 1},
      {"kind": "event_record", "submit": "graph", "segment": 1, "lane": 0},
      {"kind": "event_wait", "submit": "order", "segment": 1, "lane": 0, "record": 3},
      {"kind": "alloc_async", "submit": "plan", "segment": null, "lane": 0, "object": 2, "size": 64},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 2},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 1},
      {"kind": "host_function", "submit": "direct", "segment": null, "lane": 0}],
    "branches": [[0, null], [2, 1], [5, 1]], "ends": [4, 8],
    "segments": [{"first": 1, "last": 1, "lanes": 1, "synchronizations": 0, "edges": [], "order": [1]},
                 {"first": 3, "last": 4, "lanes": 1, "synchronizations": 0, "edges": [], "order": [3]}],
    "arena_bytes": 1024})json");
}

TEST(ScheduleReader, ReadsKindsOfStep) {
  const Schedule schedule = parse_schedule(kinds().dump(), "s.json");
  const StepPaths paths(schedule);
  ASSERT_EQ(paths.kinds(), 2u);
  const auto list = [](std::span<const std::uint32_t> ops) {
    return std::vector<std::uint32_t>(ops.begin(), ops.end());
  };
  EXPECT_EQ(list(paths.ops(0)), (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(list(paths.ops(1)), (std::vector<std::uint32_t>{0, 1, 5, 6, 7, 8}));
  EXPECT_EQ(list(paths.segments(0)), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(list(paths.segments(1)), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(paths.shared(0, 1), 2u);
  const Schedule second = kind_alone(schedule, paths, 1);
  EXPECT_EQ(second.ops.size(), 6u);
  EXPECT_EQ(second.ops[4].object, 1u);
  EXPECT_EQ(second.segments.size(), 1u);
}

TEST(ScheduleReader, RefusesKindsThatCannotBe) {
  const auto expect = [](const char* problem, const auto& change) {
    Json json = kinds();
    change(json);
    EXPECT_NE(error_of(json).find(problem), std::string::npos) << problem << ": " << error_of(json);
  };
  expect("without", [](Json& j) { j.erase("ends"); });
  expect("without", [](Json& j) { j.erase("branches"); });
  expect("branches[1][0]: does not follow", [](Json& j) { j["branches"][1][0] = 0; });
  expect("branches[0][0]: does not follow", [](Json& j) { j["branches"][0][0] = 1; });
  expect("branches[1][1]: is not an op of an earlier branch", [](Json& j) { j["branches"][1][1] = 2; });
  expect("branches: is empty", [](Json& j) { j["branches"] = Json::array(); });
  expect("ends[1]: occurs twice", [](Json& j) { j["ends"][1] = 4; });
  expect("ends: does not have", [](Json& j) { j["ends"] = Json::array(); });
  expect("ends: does not have", [](Json& j) {
    for (int i = 0; i < 17; ++i) j["ends"].push_back(i);
  });
  expect("ops[8]: is not in any kind", [](Json& j) { j["ends"][1] = 7; });
  expect("ops[4]: waits for a record that is not of its kind", [](Json& j) {
    j["branches"][1][1] = nullptr, j["branches"].push_back({4, 1}), std::swap(j["branches"][2], j["branches"][3]),
    j["ends"].push_back(3);
  });
  expect("segments[1]: extends beyond op 3", [](Json& j) { j["ends"].push_back(3); });
  expect("objects[2]: is not allocated once", [](Json& j) { j["ops"][2]["object"] = 2; });
  expect("objects[2]: overlaps another in the memory plan", [](Json& j) { j["objects"][2]["plan_offset"] = 0; });
  expect("carries", [](Json& j) { j["carries"] = true; });
  Json apart = kinds();
  apart["objects"].push_back(apart["objects"][2]);
  EXPECT_NE(error_of(apart).find("objects[3]: is not allocated once"), std::string::npos) << error_of(apart);
}

}  // namespace
}  // namespace nimble
