// What a schedule says of memory that no parameter leads to: variables, tables in payloads, textures.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/replayer/schedule/schedule_json.h"

namespace nimble {
namespace {

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

}  // namespace
}  // namespace nimble
