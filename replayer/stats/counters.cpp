#include "replayer/stats/counters.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/written_file.h"
#include "nimble/internal/process/memory_reserve.h"

namespace nimble {

std::string Counters::write(const std::string& path) const {
  const MemoryReserve reserve;  // building a JSON value does not survive running out of memory halfway
  nlohmann::ordered_json json;
  json["nimble_stats"] = 1;  // identifies the file as ours
#define NIMBLE_COUNTER(name, meaning) json[#name] = name;
#include "nimble/internal/counters.def"
  json["reasons"] = reasons;
  json["audits_skipped"] = audits_skipped;
  const auto tuned = [](nlohmann::ordered_json& object, const Kind& kind) {
    object["tuned"] = kind.tuned;
    object["tuned_us"] = nlohmann::ordered_json::object();
    for (std::size_t way = 0; way < kWays; ++way)
      if (kind.tuned_us[way] >= 0) object["tuned_us"][name(static_cast<Way>(way))] = kind.tuned_us[way];
  };
  tuned(json, kinds.empty() ? Kind{} : kinds.front());
  for (std::size_t i = 0; kinds.size() > 1 && i < kinds.size(); ++i) {
    nlohmann::ordered_json& kind = json["kinds"].emplace_back();
    kind["steps_replayed"] = kinds[i].steps_replayed;
    kind["steps_passed_through"] = kinds[i].steps_passed_through;
    tuned(kind, kinds[i]);
  }
  json["stood_aside"] = stood_aside;
  json["not_found"] = not_found;
  const WrittenFile written = write_own_file(path, json.dump(2) + "\n", FileKind::counters);
  if (written.error != 0)
    return fmt::format("{}: cannot write the counters there: {}. Set NIMBLE_STATS to another file.", path,
                       std::strerror(written.error));
  if (written.why_other.empty()) return {};
  return left_alone(path, written.why_other) + ": the counters are in " + written.path;
}

}  // namespace nimble
