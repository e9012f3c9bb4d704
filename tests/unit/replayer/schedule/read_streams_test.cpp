// What a schedule says of several streams.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tests/unit/replayer/schedule/schedule_json.h"

namespace nimble {
namespace {

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

}  // namespace
}  // namespace nimble
