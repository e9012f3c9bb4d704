#include "replayer/tune/tune_record.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/written_file.h"
#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/quiet_file.h"
#include "replayer/tune/tuner.h"

namespace nimble {

namespace {

constexpr std::size_t kMostBytes = std::size_t{8} << 30;  // the limit for schedules (schedule_reader.cpp)

}  // namespace

std::string save_choices(const std::string& schedule_path, const FileFacts& read,
                         const std::vector<ScheduleChoice>& choices) {
  using Json = nlohmann::ordered_json;
  FileFacts found;
  if (const char* const why = why_not_replaced(schedule_path, FileKind::schedule, found)) return why;
  if (!is_unchanged(schedule_path, read)) return "has changed since it was read";
  std::string text;
  if (read_quiet(schedule_path.c_str(), kMostBytes, text) != 0) return "can no longer be read";
  const MemoryReserve reserve;  // building a JSON value does not survive running out of memory halfway
  Json schedule, tuned = Json::array();
  const JsonEnds schedule_ends(schedule), tuned_ends(tuned);
  schedule = Json::parse(text, nullptr, false);
  if (!schedule.is_object()) return "can no longer be read";
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
  return replace_own_file(schedule_path, schedule.dump() + "\n", FileKind::schedule, read);
}

}  // namespace nimble
