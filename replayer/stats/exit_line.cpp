// The line that a replayed run ends with.
#include <fmt/format.h>

#include "replayer/stats/counters.h"

namespace nimble {

namespace {

std::uint64_t total(const std::map<std::string, std::uint64_t>& reasons) {
  std::uint64_t sum = 0;
  for (const auto& [reason, count] : reasons) sum += count;
  return sum;
}

}  // namespace

std::string Counters::line() const {
  std::string text =
      fmt::format("{} steps replayed, {} passed through; {} ops in {} graph launches ({} nodes updated), {} one by one",
                  steps_replayed, steps_passed_through, ops_replayed, graph_launches, node_updates, ops_passed_through);
  for (std::size_t i = 0; kinds.size() > 1 && i < kinds.size(); ++i)
    text += fmt::format("; of kind {}: {} and {}", i, kinds[i].steps_replayed, kinds[i].steps_passed_through);
  text += fmt::format("; {} early flushes, {} by the watchdog; {} divergences", flushes, watchdog_flushes, divergences);
  const char* separator = " (";
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("{}{}: {}", separator, reason, count);
    separator = ", ";
  }
  if (!reasons.empty()) text += ")";
  if (steps_audited + total(audits_skipped) > 0) {
    text += fmt::format("; {} steps audited, {} differed", steps_audited, audits_failed);
    for (const auto& [reason, count] : audits_skipped) text += fmt::format(", not audited: {}: {}", reason, count);
  }
  if (!stood_aside.empty()) text += "; stood aside: " + stood_aside;
  if (!not_found.empty()) text += "; the schedule's step was not found: " + not_found;
  return text;
}

}  // namespace nimble
