#include "replayer/schedule/schedule_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "nimble/internal/step_paths.h"

namespace nimble {
namespace {

using Json = nlohmann::json;

// A small schedule with everything in it: an allocation, a copy, two launches, a set, a record, a free, a direct op.
Json good() {
  return Json::parse(R"json({
    "nimble_schedule": 6, "policy": "nimble", "trace_digest": "00",
    "streams": [{"kind": "blocking", "forked": true}],
    "functions": [{"name": "k", "params": [[0, 8], [8, 4]], "self_contained": true}],
    "objects": [{"memory": "pinned", "size": 64, "step_local": false, "plan_offset": 0},
                {"memory": "stream_ordered", "size": 64, "step_local": true, "plan_offset": 0},
                {"memory": "stream_ordered", "size": 100, "step_local": true, "plan_offset": 512}],
    "ops": [
      {"kind": "alloc_async", "submit": "plan", "segment": null, "lane": 0, "object": 1, "size": 64},
      {"kind": "alloc_async", "submit": "plan", "segment": null, "lane": 0, "object": 2, "size": 100},
      {"kind": "copy", "submit": "graph", "segment": 0, "lane": 0, "dst": {"object": 1, "offset": 0, "fixed": false},
       "src": {"object": 0, "offset": 16, "fixed": true}, "dst_pitch": 0, "src_pitch": 0, "width": 48, "height": 1},
      {"kind": "launch", "submit": "graph", "segment": 0, "lane": 0, "function": 0, "grid": [1, 1, 1], "block": [32, 1, 1],
       "shared_bytes": 0, "fixed_launch": false, "barrier": false, "priority": 3, "pointers": [{"at": 0, "object": 1, "offset": 0, "fixed": false}], "numbers": [],
       "writes": [1], "believed_reads": [0, 2]},
      {"kind": "set", "submit": "graph", "segment": 0, "lane": 1, "dst": {"object": 2, "offset": 0, "fixed": false},
       "dst_pitch": 20, "width": 16, "height": 5, "element": 4},
      {"kind": "event_record", "submit": "graph", "segment": 0, "lane": 0},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 1},
      {"kind": "free_async", "submit": "plan", "segment": null, "lane": 0, "object": 2},
      {"kind": "host_function", "submit": "direct", "segment": null, "lane": 0}],
    "segments": [{"first": 2, "last": 5, "lanes": 2, "synchronizations": 1, "edges": [[2, 3], [3, 5], [4, 5]],
                  "order": [2, 3, 4, 5]}],
    "arena_bytes": 1024})json");
}

std::string error_of(const Json& json) {
  try {
    parse_schedule(json.dump(), "s.json");
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleReader, ReadsEverything) {
  const Schedule schedule = parse_schedule(good().dump(), "s.json");
  EXPECT_EQ(schedule.ops.size(), 9u);
  EXPECT_EQ(schedule.ops[2].src.offset, 16u);
  EXPECT_TRUE(schedule.ops[2].src.fixed);
  EXPECT_EQ(schedule.ops[3].priority, 3u);
  EXPECT_EQ(schedule.ops[3].writes, std::vector<std::uint32_t>{1});
  EXPECT_EQ(schedule.ops[3].believed_reads, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(schedule.ops[4].element, 4u);
  EXPECT_EQ(schedule.segments[0].edges.size(), 3u);
  EXPECT_EQ(schedule.objects[2].plan_offset, 512u);
  EXPECT_EQ(schedule.arena_bytes, 1024u);
}

Json with_pairs(const char* trust, int declared, int observed, bool estimated) {
  Json json = good();
  json["trust"] = trust;
  json["unordered_pairs"] = {
      {"exact", 1}, {"proven", 2}, {"declared", declared}, {"observed", observed}, {"estimated", estimated}};
  return json;
}

TEST(ScheduleReader, ReadsWhatTheOrderRestsOn) {
  EXPECT_FALSE(parse_schedule(good().dump(), "s.json").rests_on_beliefs()) << "it does not say";
  const auto rests = [](const char* trust, int declared, int observed, bool estimated = false) {
    return parse_schedule(with_pairs(trust, declared, observed, estimated).dump(), "s.json").rests_on_beliefs();
  };
  EXPECT_FALSE(rests("proven", 0, 0));
  EXPECT_FALSE(rests("proven", 0, 0, true));
  EXPECT_FALSE(rests("observed", 0, 0)) << "nothing was believed after all";
  EXPECT_TRUE(rests("observed", 0, 0, true)) << "not every pair was counted";
  EXPECT_TRUE(rests("declared", 3, 0));
  EXPECT_TRUE(rests("observed", 0, 3));
  Json wrong = with_pairs("observed", 1, 2, false);
  wrong["unordered_pairs"]["declared"] = -1;
  EXPECT_NE(error_of(wrong).find("unordered_pairs.declared"), std::string::npos);
  wrong["unordered_pairs"].erase("declared");
  EXPECT_NE(error_of(wrong).find("unordered_pairs"), std::string::npos);
}

Json with_hidden_state() {
  Json json = good();
  json["functions"][0]["proven"] = Json::parse(R"([[[0],"w",[[8,4,"!=",7],[0,8,"==",0]]]])");
  json["functions"][0]["stored"] = {8};
  json["functions"][0]["doubts"] = "00000000000000ab";
  json["functions"][0]["globals"] = Json::parse(R"([["v",0,"rw"]])");
  json["ops"][2]["payload"] = Json::parse("[[0,1,8],[40,0,0]]");
  json["carries"] = json["textures"] = true;
  return json;
}

TEST(ScheduleReader, ReadsWhatIsReachedByNoParameter) {
  const Schedule plain = parse_schedule(good().dump(), "s.json");
  EXPECT_FALSE(plain.carries || plain.textures || plain.ops[2].payload);
  const Schedule schedule = parse_schedule(with_hidden_state().dump(), "s.json");
  EXPECT_TRUE(schedule.carries && schedule.textures);
  ASSERT_EQ(schedule.functions[0].globals.size(), 1u);
  EXPECT_EQ(schedule.functions[0].globals[0].name, "v");
  EXPECT_TRUE(schedule.functions[0].globals[0].reads && schedule.functions[0].globals[0].writes);
  EXPECT_EQ(schedule.functions[0].stored, std::vector<std::uint32_t>{8});
  EXPECT_EQ(schedule.functions[0].doubts, 0xabu);
  EXPECT_EQ(*schedule.functions[0].proven,
            (std::vector<ProvenAccess>{{{0}, false, true, {{8, 4, false, 7}, {0, 8, true, 0}}}}));
  ASSERT_EQ(schedule.ops[2].payload->size(), 2u);
  EXPECT_EQ((*schedule.ops[2].payload)[1].at, 40u);
  EXPECT_EQ((*schedule.ops[2].payload)[0].pointer.offset, 8u);
  // A copy that the program makes itself may carry a table, too: its source need not be any object.
  Json direct = with_hidden_state();
  direct["ops"][8] = direct["ops"][2];
  direct["ops"][8]["submit"] = "direct";
  direct["ops"][8]["segment"] = nullptr;
  direct["ops"][8]["dst"]["object"] = 0;
  direct["ops"][8]["src"]["object"] = nullptr;
  direct["ops"][8]["payload"] = Json::array();
  EXPECT_TRUE(parse_schedule(direct.dump(), "s.json").ops[8].payload);
}

TEST(ScheduleReader, NamesTheBrokenFieldOfWhatIsReachedByNoParameter) {
  const auto broken = [](const char* pointer, Json value) {
    Json json = with_hidden_state();
    json[Json::json_pointer(pointer)] = std::move(value);
    return error_of(json);
  };
  const std::pair<std::string, const char*> cases[] = {
      {broken("/ops/2/payload/0/0", 41), "ops[2].payload[0][0]"},
      {broken("/ops/2/payload/1/0", 4), "ops[2].payload[1][0]"},
      {broken("/ops/2/payload/0/1", 3), "ops[2].payload[0][1]"},
      {broken("/ops/2/payload/0/1", 2), ""},
      {broken("/ops/2/payload/0/2", 64), "ops[2].payload[0][2]"},
      {broken("/ops/2/payload/0", 5), "ops[2].payload[0]"},
      {broken("/functions/0/globals/0/1", 1), "functions[0].globals[0][1]"},
      {broken("/functions/0/globals/0/1", 9), "functions[0].globals[0][1]"},
      {broken("/functions/0/globals/0/2", "x"), "functions[0].globals[0][2]"},
      {broken("/functions/0/globals/0", "x"), "functions[0].globals[0]"},
      {broken("/functions/0/stored", -1), "functions[0].stored"},
      {broken("/functions/0/doubts", "ab"), "functions[0].doubts"},
      {broken("/functions/0/proven/0/2", 7), "functions[0].proven[0][2]"},
      {broken("/functions/0/proven/0/3", 7), "functions[0].proven[0]"},
      {broken("/functions/0/proven/0/2/0", 7), "functions[0].proven[0][2][0]"},
      {broken("/functions/0/proven/0/2/0/0", 9), "functions[0].proven[0][2][0]"},
      {broken("/functions/0/proven/0/2/0/1", 3), "functions[0].proven[0][2][0]"},
      {broken("/functions/0/proven/0/2/0/1", 0), "functions[0].proven[0][2][0]"},
      {broken("/functions/0/proven/0/2/0/2", "<"), "functions[0].proven[0][2][0][2]"},
      {broken("/functions/0/proven/0/2/0/3", 1ull << 32), "functions[0].proven[0][2][0][3]"},
      {broken("/carries", 1), "carries"},
      {broken("/textures", "yes"), "textures"},
  };
  for (const auto& [error, field] : cases) {
    if (*field)
      EXPECT_NE(error.find(std::string("s.json: ") + field), std::string::npos) << error;
    else
      EXPECT_EQ(error, "");
  }
}

// The record and the set are on a second stream, which has waited for an earlier step; in the end the first one waits
// for the record.
Json with_streams() {
  Json json = good();
  json["streams"] = Json::parse(R"([{"kind": "blocking", "forked": true}, {"kind": "non_blocking", "forked": false}])");
  json["ops"][4]["stream"] = json["ops"][5]["stream"] = 1;
  const auto wait = [](const char* record, int stream) {
    return Json::parse(R"({"kind": "event_wait", "submit": "order", "segment": 0, "lane": 0, "stream": )" +
                       std::to_string(stream) + R"(, "record": )" + record + "}");
  };
  json["ops"].insert(json["ops"].begin() + 6, wait("5", 0));
  json["ops"].insert(json["ops"].begin() + 7, wait("null", 1));
  json["segments"][0]["last"] = 7;
  return json;
}

TEST(ScheduleReader, ReadsStreams) {
  const Schedule plain = parse_schedule(good().dump(), "s.json");
  ASSERT_EQ(plain.streams.size(), 1u);
  EXPECT_EQ(plain.ops[5].stream, 0u);
  const Schedule schedule = parse_schedule(with_streams().dump(), "s.json");
  ASSERT_EQ(schedule.streams.size(), 2u);
  EXPECT_EQ(schedule.streams[1].kind, StreamKind::non_blocking);
  EXPECT_TRUE(schedule.streams[0].forked && !schedule.streams[1].forked);
  EXPECT_EQ(schedule.ops[4].stream, 1u);
  EXPECT_EQ(schedule.ops[6].submit, Submit::order);
  EXPECT_EQ(schedule.ops[6].record, 5u);
  EXPECT_EQ(schedule.ops[7].record, kNone);
  EXPECT_EQ(schedule.segments[0].order.size(), 4u);
}

TEST(ScheduleReader, NamesTheBrokenFieldOfStreams) {
  const auto broken = [](const char* pointer, Json value) {
    Json json = with_streams();
    json[Json::json_pointer(pointer)] = std::move(value);
    return error_of(json);
  };
  const Json::json_pointer streams("/streams");
  Json many = with_streams();
  for (int i = 0; i < 20; ++i) many[streams].push_back(many[streams][1]);
  Json unused = with_streams();
  unused[streams].push_back(unused[streams][1]);
  const std::pair<std::string, const char*> cases[] = {
      {error_of(many), "streams"},
      {error_of(unused), "streams[2]"},
      {broken("/streams", Json::array()), "streams"},
      {broken("/streams/0/kind", "per_thread"), "streams[0].kind"},
      {broken("/streams/0/kind", "wide"), "streams[0].kind"},
      {broken("/streams/0/kind", "non_blocking"), ""},
      {broken("/streams/1/kind", "legacy"), "streams[1].kind"},
      {broken("/streams/1/forked", 1), "streams[1].forked"},
      {broken("/ops/4/stream", 2), "ops[4].stream"},
      {broken("/ops/6/record", 6), "ops[6].record"},
      {broken("/ops/6/record", 4), "ops[6].record"},
      {broken("/ops/6/record", -1), "ops[6].record"},
      {broken("/ops/6/segment", nullptr), "ops[6].segment"},
      {broken("/ops/6/segment", 1), "segments[0]"},
      {broken("/ops/6/submit", "graph"), "ops[6].submit"},
      {broken("/ops/6/submit", "plan"), "ops[6].segment"},
      {broken("/ops/5/submit", "order"), "ops[5].submit"},
      {broken("/segments/0/last", 6), "ops[7].segment"},
      {broken("/segments/0/order", Json::array({2, 3, 4, 5, 6})), "segments[0].order"},
      {broken("/segments/0/edges/0", Json::array({2, 6})), "segments[0].edges[0][1]"},
  };
  for (const auto& [error, field] : cases) {
    if (*field)
      EXPECT_NE(error.find(std::string("s.json: ") + field), std::string::npos) << error;
    else
      EXPECT_EQ(error, "");
  }
}

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

// Each broken schedule, and the field that the one line of error must name.
TEST(ScheduleReader, NamesTheBrokenField) {
  const auto broken = [](const char* pointer, Json value) {
    Json json = good();
    json[Json::json_pointer(pointer)] = std::move(value);
    return error_of(json);
  };
  const std::pair<std::string, const char*> cases[] = {
      {broken("/nimble_schedule", 1), "nimble_schedule"},
      {broken("/nimble_schedule", "1"), "nimble_schedule"},
      {broken("/functions/0/params/1/0", 4), "functions[0].params[1]"},
      {broken("/functions/0/params/1/1", 1u << 30), "functions[0].params[1][1]"},
      {broken("/objects/0/memory", "tape"), "objects[0].memory"},
      {broken("/objects/0/size", -1), "objects[0].size"},
      {broken("/objects/0/size", 1e30), "objects[0].size"},
      {broken("/objects/2/plan_offset", 0), "objects[2]"},
      {broken("/objects/2/plan_offset", 256), "objects[2]: has a plan_offset that is not a multiple of 512"},
      {broken("/objects/2/plan_offset", 1024), "objects[2]"},
      {broken("/ops", Json::array()), "ops"},
      {broken("/ops/0/object", 7), "ops[0].object"},
      {broken("/ops/0/size", 65), "ops[0].size"},
      {broken("/ops/3/priority", 6), "ops[3].priority"},
      {broken("/ops/3/priority", -1), "ops[3].priority"},
      {broken("/ops/0/object", 2), "ops[0].size"},
      {broken("/ops/2/width", 49), "ops[2].src"},
      {broken("/ops/2/submit", "later"), "ops[2].submit"},
      {broken("/ops/2/segment", nullptr), "ops[2].segment"},
      {broken("/ops/3/function", 1), "ops[3].function"},
      {broken("/ops/3/grid/1", 0), "ops[3].grid[1]"},
      {broken("/ops/3/pointers/0/at", 8), "ops[3].pointers[0].at"},
      {broken("/ops/3/pointers/0/at", 4), "ops[3].pointers[0].at"},
      {broken("/ops/3/pointers/0/offset", 64), "ops[3].pointers[0].offset"},
      {broken("/ops/3/pointers/0/object", 2), ""},
      {broken("/ops/3/barrier", true), "ops[3].pointers"},
      {broken("/ops/3/barrier", 1), "ops[3].barrier"},
      {broken("/ops/3/numbers", Json::array({8, 8})), "ops[3].numbers[1]"},
      {broken("/ops/3/numbers", nullptr), "ops[3].numbers"},
      {broken("/ops/3/writes", nullptr), "ops[3].writes"},
      {broken("/ops/3/writes/0", 3), "ops[3].writes[0]"},
      {broken("/ops/3/believed_reads/1", -1), "ops[3].believed_reads[1]"},
      {broken("/ops/3/equal", Json::array({Json::array({0, "0g"})})), "ops[3].equal[0][1]"},
      {broken("/ops/3/equal", Json::array({Json::array({0, "000"})})), "ops[3].equal[0][1]"},
      {broken("/ops/3/equal", Json::array({Json::array({4000, "00"})})), "ops[3].equal[0]"},
      {broken("/functions/0/self_contained", 1), "functions[0].self_contained"},
      {broken("/functions/0/code", 1), "functions[0].code"},
      {broken("/functions/0/code", "0123456789abcde"), "functions[0].code"},
      {broken("/functions/0/code", "0123456789abcdeg"), "functions[0].code"},
      {broken("/functions/0/code", "0000000000000000"), "functions[0].code"},
      {broken("/functions/0/code", "0123456789abcdef"), ""},
      {broken("/segments/0",
              Json::parse(R"({"first": 0, "last": 0, "lanes": 1, "synchronizations": 0, "edges": [], "order": []})")),
       "segments[0]"},
      {broken("/ops/4/height", 6), "ops[4].dst"},
      {broken("/ops/4/dst_pitch", 15), "ops[4].dst"},
      {broken("/ops/4/dst_pitch", 1u << 31), "ops[4].dst"},
      {broken("/ops/4/element", 3), "ops[4].element"},
      {broken("/ops/6/object", 0), "ops[6].object"},
      {broken("/ops/6/kind", "alloc_async"), "ops[6]"},
      {broken("/ops/8/submit", "graph"), "ops[8]"},
      {broken("/segments/0/first", 1000), "segments[0].first"},
      {broken("/segments/0/last", 1), "segments[0].last"},
      {broken("/segments/0/last", 8), "segments[0]"},
      {broken("/segments/0/edges/0", Json::array({3, 2})), "segments[0].edges[0]"},
      {broken("/segments/0/edges/0", Json::array({2, 2})), "segments[0].edges[0]"},
      {broken("/segments/0/edges/0", Json::array({0, 3})), "segments[0].edges[0][0]"},
      {broken("/segments/0/order", Json::array({3, 2, 4, 5})), "segments[0].edges[0]"},
      {broken("/segments/0/order", Json::array({2, 2, 4, 5})), "segments[0].order[1]"},
      {broken("/segments/0/order", Json::array({2, 3, 4})), "segments[0].order"},
      {broken("/segments", Json::array()), "ops[2].segment"},
      {broken("/arena_bytes", 600), "objects[2]"},
  };
  for (const auto& [error, field] : cases) {
    if (!*field) {
      EXPECT_EQ(error, "");  // legal, though odd
      continue;
    }
    EXPECT_NE(error.find(std::string("s.json: ") + field), std::string::npos)
        << "expected " << field << ", got: " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
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

TEST(ScheduleReader, NamesTheMissingField) {
  const Json whole = good();
  for (const auto& [key, value] : whole.items()) {
    Json json = whole;
    json.erase(key);
    EXPECT_NE(error_of(json).find('"' + key + '"'), std::string::npos) << key;
  }
}

TEST(ScheduleReader, RefusesWhatIsNoJson) {
  for (const std::string text : {"", "{", "[1,2", "\x7f\x45LF\x01\x02", "null", "[]", "3"}) {
    EXPECT_THROW(parse_schedule(text, "s.json"), ScheduleError) << text;
  }
  EXPECT_THROW(read_schedule("/nowhere/schedule.json"), ScheduleError);
}

// Whatever bytes come: either a schedule or a ScheduleError.
TEST(ScheduleReader, SurvivesDamage) {
  const std::string text = good().dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse_schedule(text.substr(0, length), "s.json"), ScheduleError);
  }
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = text;
    for (unsigned i = 0; i <= random() % 3; ++i)
      damaged[random() % damaged.size()] = "0123456789{}[],:\"x-e."[random() % 21];
    try {
      parse_schedule(damaged, "s.json");
      ++accepted;
    } catch (const ScheduleError&) {
    }
  }
  EXPECT_GT(accepted, 0);  // damage within a name or a free number is no error
}

}  // namespace
}  // namespace nimble
