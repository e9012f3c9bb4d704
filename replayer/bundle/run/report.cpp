#include "replayer/bundle/run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "analyzer/base/text.h"

namespace nimble::bundle {

namespace {

using analyzer::bytes_text;
using analyzer::plural;
using Json = nlohmann::ordered_json;

constexpr double kShares[] = {0.5, 0.9, 0.99};

std::vector<double> of(const WayResult& way, double RunTime::*which) {
  std::vector<double> values;
  for (const RunTime& time : way.times) values.push_back(time.*which);
  return values;
}

// How many times as fast as the program's order; 0 if unknown.
double speed_up(const ReplayReport& report, const WayResult& way) {
  if (way.times.empty() || report.ways.front().times.empty()) return 0;
  const double mine = percentile(of(way, &RunTime::gpu_us), 0.5);
  return mine > 0 ? percentile(of(report.ways.front(), &RunTime::gpu_us), 0.5) / mine : 0;
}

Json times_of(const WayResult& way, double RunTime::*which) {
  if (way.times.empty()) return nullptr;
  return {{"min", percentile(of(way, which), 0)},
          {"p50", percentile(of(way, which), 0.5)},
          {"p90", percentile(of(way, which), 0.9)},
          {"p99", percentile(of(way, which), 0.99)}};
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[rank == 0 ? 0 : rank - 1];
}

std::string text_of(const WayResult& way) {
  const Difference& it = *way.difference;
  return fmt::format("{}: run {}: {}, byte {}: recorded {:02x}, found {:02x}{}; {} in {}", way.name, way.runs, it.what,
                     it.offset, it.recorded, it.found,
                     it.last_writer.empty() ? "" : ", last written by " + it.last_writer,
                     plural(it.bytes, "byte") + (it.bytes == 1 ? " differs" : " differ"), plural(it.objects, "object"));
}

std::string text_of(const ReplayReport& report) {
  std::string text;
  auto out = std::back_inserter(text);
  const char* const mark = report.simulated ? " (simulated)" : "";
  fmt::format_to(out, "bundle          {}\n", report.folder);
  fmt::format_to(out, "program         {}\n", report.program);
  fmt::format_to(out, "step            {}, of which {} launches; seq {} to {}\n", plural(report.ops, "op"),
                 report.launches, report.first_seq, report.last_seq);
  fmt::format_to(out, "device          {}{}; recorded on {}\n", report.device, mark, report.recorded_on);
  fmt::format_to(out, "memory          {}; {} of the device's, {} of the host's, {}\n",
                 plural(report.objects, "object"), bytes_text(report.device_bytes), bytes_text(report.host_bytes),
                 report.moved ? "some of it not at its recorded addresses" : "all at its recorded addresses");
  fmt::format_to(out, "\n{:<16}{:>7}{:>8}{:>8}{:>11}{:>11}{:>11}{:>11}{:>10}{:>13}\n", "", "equal", "streams", "graphs",
                 "p50", "p90", "p99", "min", "speed-up", "host p50");
  for (const WayResult& way : report.ways) {
    fmt::format_to(out, "{:<16}{:>7}{:>8}{:>8}", way.name,
                   !way.failure.empty() ? "-"
                   : way.difference     ? "NO"
                                        : "yes",
                   way.streams, way.graphs);
    if (!way.times.empty()) {
      const std::vector<double> gpu = of(way, &RunTime::gpu_us);
      for (const double share : kShares) fmt::format_to(out, "{:>8.1f} us", percentile(gpu, share));
      fmt::format_to(out, "{:>8.1f} us{:>10.2f}{:>10.1f} us", percentile(gpu, 0), speed_up(report, way),
                     percentile(of(way, &RunTime::host_us), 0.5));
    }
    text += "\n";
  }
  fmt::format_to(
      out,
      "\nTimes are the GPU's{}, from events around the step; host is the wall clock here, until everything is done.\n",
      mark);
  for (const WayResult& way : report.ways)
    if (!way.failure.empty())
      fmt::format_to(out, "\nNo result: {}: {}\n", way.name, way.failure);
    else if (way.difference)
      fmt::format_to(out, "\nNot as recorded: {}\n", text_of(way));
  if (!report.ways.empty() && report.ways.front().difference)
    text +=
        "The program's own order gives this, too: a kernel of the step may be nondeterministic, or reach memory that\n"
        "the bundle does not hold.\n";
  if (!report.why_no_schedule.empty()) fmt::format_to(out, "\nNo schedule: {}\n", report.why_no_schedule);
  return text;
}

std::string json_of(const ReplayReport& report) {
  Json json{{"nimble_replay", 1},
            {"bundle", report.folder},
            {"program", report.program},
            {"recorded_on", report.recorded_on},
            {"device", report.device},
            {"simulated", report.simulated},
            {"ops", report.ops},
            {"launches", report.launches},
            {"objects", report.objects},
            {"device_bytes", report.device_bytes},
            {"host_bytes", report.host_bytes},
            {"moved", report.moved},
            {"hidden", report.hidden},
            {"why_no_schedule", report.why_no_schedule}};
  json["ways"] = Json::array();
  for (const WayResult& way : report.ways) {
    Json item{{"way", way.key},
              {"equal", way.failure.empty() ? Json(!way.difference.has_value()) : Json(nullptr)},
              {"failure", way.failure},
              {"runs", way.runs},
              {"streams", way.streams},
              {"graphs", way.graphs},
              {"plan_bytes", way.arena_bytes},
              {"gpu_us", times_of(way, &RunTime::gpu_us)},
              {"host_us", times_of(way, &RunTime::host_us)},
              {"speed_up", speed_up(report, way)}};
    if (way.difference) {
      const Difference& it = *way.difference;
      item["difference"] = {
          {"what", it.what},   {"offset", it.offset},   {"recorded", it.recorded},      {"found", it.found},
          {"bytes", it.bytes}, {"objects", it.objects}, {"last_writer", it.last_writer}};
    }
    json["ways"].push_back(std::move(item));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nimble::bundle
