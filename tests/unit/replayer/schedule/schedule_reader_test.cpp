#include "replayer/schedule/schedule_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/replayer/schedule/schedule_json.h"

namespace nimble {
namespace {

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
