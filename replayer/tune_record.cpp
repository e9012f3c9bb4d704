#include "replayer/tune_record.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "replayer/tuner.h"

namespace nimble {

std::string save_choices(const std::string& schedule_path, const std::vector<ScheduleChoice>& choices) {
  using Json = nlohmann::ordered_json;
  std::ifstream file(schedule_path, std::ios::binary);
  Json schedule = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr, false);
  if (!schedule.is_object()) return "cannot be read any more";
  Json tuned = Json::array();
  for (const ScheduleChoice& choice : choices) {
    if (choice.way == kNone) {
      tuned.push_back(nullptr);
      continue;
    }
    Json times = Json::array();
    for (const double us : choice.us)
      us < 0 ? times.push_back(nullptr) : times.push_back(static_cast<std::uint64_t>(us * 1000));
    tuned.push_back({name(static_cast<Way>(choice.way)), std::move(times)});
  }
  schedule["tuned"] = std::move(tuned);
  const std::string draft = schedule_path + "." + std::to_string(getpid());
  std::ofstream out(draft, std::ios::binary);
  out << schedule.dump() << "\n";
  out.close();
  if (out && std::rename(draft.c_str(), schedule_path.c_str()) == 0) return {};
  std::remove(draft.c_str());
  return "cannot be written";
}

}  // namespace nimble
