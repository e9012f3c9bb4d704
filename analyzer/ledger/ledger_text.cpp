// The idle ledger as text, and as JSON.
#include <algorithm>
#include <cstdio>

#include "analyzer/base/json_text.h"
#include "analyzer/base/text.h"
#include "analyzer/ledger/gains.h"
#include "analyzer/ledger/ledger.h"

namespace nimble::analyzer {
namespace {

bool is_simulated(const Trace& trace) { return trace.device.find("Simulated") != std::string::npos; }

std::string share_text(double us, double of_us) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f %%", of_us > 0 ? 100 * us / of_us : 0.0);
  return text;
}

std::string row(const std::string& time, const std::string& share, const std::string& places, const std::string& what) {
  char left[64];
  std::snprintf(left, sizeof left, "%12s %6s %7s  ", time.c_str(), share.c_str(), places.c_str());
  return left + what + "\n";
}

std::string sums(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device) {
  const RepeatTimes& times = ledger.times;
  const bool follows = times.next_call != kNone;
  const double lost = ledger.idle_us + ledger.narrow_us;
  std::string out =
      "step            " + us_text(ledger.step_us) +
      (follows ? " from a repeat's first op to the next one's" : " from a repeat's first op to its last one's end");
  out += " (repeat " + std::to_string(times.occurrence + 1) + " of " + std::to_string(analysis.step.begins.size()) +
         ": the median" + (is_simulated(analysis.input.trace()) ? "; simulated time" : "") + ")\n";
  out += "idle            " + us_text(ledger.idle_us) + ", " + share_text(ledger.idle_us, ledger.step_us) +
         ": no op ran\n";
  out += "narrow          " + us_text(ledger.narrow_us) + ", " + share_text(ledger.narrow_us, ledger.step_us) +
         ": what ran fills less than half of " +
         plural(static_cast<std::uint64_t>(device.multiprocessors), "multiprocessor") + ", by a model of the device\n";
  out += "accounted for   " + share_text(lost - ledger.of(LossCause::unknown), lost) + " of both\n";
  if (!times.one_clock)
    out +=
        "clocks          host and GPU have different ones in this trace, as simulated times do: what the host did is "
        "not known\n";
  if (times.untimed > 0)
    out += "not timed       " + plural(times.untimed, "op") + " of the step, such as functions of the host\n";
  return out;
}

std::string times_as_fast(double step_us, double predicted_us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", predicted_us > 0 ? step_us / predicted_us : 0.0);
  return text;
}

void prediction(const StepAnalysis& analysis, const Ledger& ledger, std::string& out) {
  if (analysis.plan.status != kExitOk)
    out += "\nNo schedule can serve this step: " + analysis.plan.why_no_schedule + "\n";
  const std::optional<Gains> gains = predict_gains(analysis, ledger);
  if (!gains) return;
  const auto line = [&](double us, const char* what) {
    out += row(us_text(us), times_as_fast(ledger.step_us, us), "", what);
  };
  out += "\nPredicted, not measured; faster than the step as recorded, which recording slows:\n" +
         row("a step", "faster", "", "");
  line(gains->graph_us, "as one CUDA graph in the program's order: no time is lost for want of the host");
  if (gains->streams_us) line(*gains->streams_us, "as a graph with several streams, by a model of the device");
  if (gains->replay_us)
    line(*gains->replay_us, "by mode replay, in which the program still makes its calls; by that model");
}

}  // namespace

std::string ledger_text(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device,
                        std::size_t most) {
  if (ledger.times.repeats == 0) return std::string(kNoTimes) + "\n";
  std::string out = sums(analysis, ledger, device);
  if (ledger.entries.empty()) return out + "\nThe GPU is busy throughout.\n";
  const double lost = ledger.idle_us + ledger.narrow_us;
  out += "\n" + row("time", "share", "places", "cause");
  for (std::size_t i = 0; i < std::min(most, ledger.entries.size()); ++i) {
    const LedgerEntry& entry = ledger.entries[i];
    out += row(us_text(entry.us()), share_text(entry.us(), lost), std::to_string(entry.places),
               std::string(name(entry.cause)) + ": " + entry.what);
  }
  if (ledger.entries.size() > most) {
    double rest = 0;
    for (std::size_t i = most; i < ledger.entries.size(); ++i) rest += ledger.entries[i].us();
    out += row(us_text(rest), share_text(rest, lost), "",
               plural(ledger.entries.size() - most, "other") + "; --most shows more, --json all");
  }
  out += "\nWhat helps:\n";
  for (int i = 0; i < kLossCauses; ++i) {
    const auto cause = static_cast<LossCause>(i);
    if (const double us = ledger.of(cause); us > 0)
      out += "  " + std::string(name(cause)) + " (" + us_text(us) + "): " + remedy(cause) + "\n";
  }
  prediction(analysis, ledger, out);
  return out;
}

std::string ledger_json(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device) {
  JsonText out;
  out.open('{').key("nimble_ledger").number(1).newline();
  out.key("simulated").boolean(is_simulated(analysis.input.trace()));
  out.key("one_clock").boolean(ledger.times.one_clock);
  out.key("step_us").real(ledger.step_us).key("idle_us").real(ledger.idle_us);
  out.key("narrow_us").real(ledger.narrow_us).key("accounted_for_us");
  out.real(ledger.idle_us + ledger.narrow_us - ledger.of(LossCause::unknown)).newline();
  out.key("repeat").number(ledger.times.occurrence).key("chosen_from").number(ledger.times.repeats);
  out.key("ops").number(analysis.step.period).key("untimed").number(ledger.times.untimed);
  out.key("multiprocessors").number(static_cast<std::uint64_t>(device.multiprocessors)).newline();
  if (const std::optional<Gains> gains = predict_gains(analysis, ledger)) {
    out.key("predicted").open('{').key("graph_us").real(gains->graph_us);
    if (gains->streams_us) out.key("streams_us").real(*gains->streams_us);
    if (gains->replay_us) out.key("replay_us").real(*gains->replay_us);
    out.close('}').newline();
  }
  out.key("causes").open('{');
  for (int i = 0; i < kLossCauses; ++i) {
    const auto cause = static_cast<LossCause>(i);
    out.key(name(cause)).real(ledger.of(cause));
  }
  out.close('}').newline().key("entries").open('[');
  for (const LedgerEntry& entry : ledger.entries) {
    out.newline().open('{').key("cause").text(name(entry.cause)).key("what").text(entry.what);
    out.key("idle_us").real(entry.idle_us).key("narrow_us").real(entry.narrow_us).key("places").number(entry.places);
    out.key("largest").open('{').key("at_us").real(entry.largest.begin_us - ledger.times.from_us);
    out.key("us").real(entry.largest.us());
    for (const auto& [key, op] : {std::pair("op", entry.largest.op), std::pair("held_by", entry.largest.held_by)})
      if (op != kNone) out.key(key).number(op);
    out.close('}').key("helps").text(remedy(entry.cause)).close('}');
  }
  return out.close(']').close('}').newline().take();
}

}  // namespace nimble::analyzer
