#include "tests/oracle/disorder/check_disorder.h"

#include <cuda.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "tests/oracle/disorder/script_runner.h"
#include "tests/oracle/program/host_times.h"
#include "tests/oracle/program/random.h"
#include "tests/oracle/run/runner.h"

namespace nimble::oracle {
namespace {

constexpr std::uint32_t kAttempts = 6;  // at a program that has a schedule
constexpr std::uint32_t kCalm = 5;      // steps that show whether replay takes it up

bool is_fatal(FaultKind kind) { return kind == FaultKind::fatal || kind == FaultKind::runs; }

std::string text_of(const std::vector<Told>& errors) {
  std::string text = fmt::format("{} errors", errors.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(errors.size(), 4); ++i)
    text += fmt::format(", {} in step {} at {}", errors[i].result, errors[i].step, errors[i].at);
  return text;
}

class Check {
 public:
  Check(std::uint64_t seed, const Cuts& cuts, const DisorderOptions& options, PlainRuns& plain, std::string folder)
      : seed_(seed),
        cuts_(cuts),
        options_(options),
        plain_(plain),
        folder_(std::move(folder)),
        random_(seed ^ 0xfa57e2) {}

  DisorderOutcome run() try {
    for (attempt_ = 0; attempt_ < kAttempts && outcome_.failures.empty() && !outcome_.schedule; ++attempt_) {
      outcome_.attempts = attempt_ + 1;
      make_schedule();
      if (outcome_.schedule) break;
    }
    if (!outcome_.schedule || !outcome_.failures.empty()) return std::move(outcome_);
    script_ = make_script(seed_, attempt_, cuts_);
    note_script();
    if (!run_plain()) return std::move(outcome_);
    Cuts replayed = cuts_;
    if (options_.what == BreakDisorder::change && !script_.changes.empty())
      replayed.without.push_back(random_.below(static_cast<std::uint32_t>(script_.changes.size())));
    if (options_.what == BreakDisorder::error) replayed.no_fault = true;
    const Script tried = make_script(seed_, attempt_, replayed);
    outcome_.broken |= options_.what == BreakDisorder::error && script_.fault.kind == FaultKind::refused;
    outcome_.broken |= options_.what == BreakDisorder::hang;
    outcome_.broken |= options_.what == BreakDisorder::change && !script_.changes.empty();
    for (std::uint32_t i = 0; i < options_.runs; ++i) replay(tried);
    return std::move(outcome_);
  } catch (const std::exception& error) {
    fail("run", error.what());
    return std::move(outcome_);
  }

 private:
  void fail(const std::string& check, const std::string& what, const std::string& log = {}) {
    outcome_.failures.push_back(check + ": " + what);
    if (!log.empty()) outcome_.log = log;
  }
  std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string order() { return std::to_string(1 + random_.below(1000000)); }

  void make_schedule() {
    Program base = base_of(seed_, attempt_, cuts_.limits);
    if (base.calm != 0) base.repeats = base.calm;
    const Script recorded = make_recording(seed_, attempt_, cuts_);
    const Run run = run_in_child(
        [&] {
          return recorded.kinds == 1 ? std::to_string(run_program(base)) : pack(run_script(recorded, Faults::all));
        },
        {{"NIMBLE_MODE", "record"}, {"NIMBLE_TRACE", path("trace.json")}}, folder_, options_.patience_s);
    if (!run.failure.empty()) return fail(run.hung ? "hung" : "run", "recorded: " + run.failure, run.log);
    analyzer::TraceFile file = analyzer::read_trace(path("trace.json"));
    invent_host_times(file.trace, Random(base.seed ^ 0xdead));
    const analyzer::Analysis analysis = analyzer::analyze(std::move(file), {});
    if (analysis.plan.status != analyzer::kExitOk) return;
    outcome_.kinds = static_cast<std::uint32_t>(analysis.others.size()) + 1;
    std::string text = analyzer::schedule_text(analyzer::build_schedule(analysis));
    if (options_.what == BreakDisorder::dependency) text = without_an_edge(text);
    std::ofstream(path("schedule.json")) << text;
    // A program none of whose steps is replayed shows little; a few of those suffice.
    outcome_.schedule = attempt_ + 1 == kAttempts || Random(base.seed ^ 0xab1e).percent(5) || is_replayed(base);
  }

  bool is_replayed(Program base) {
    base.repeats = kCalm;
    std::remove(path("stats.json").c_str());
    const Run run = run_in_child([&] { return std::to_string(run_program(base)); },
                                 {{"NIMBLE_MODE", "replay"},
                                  {"NIMBLE_SCHEDULE", path("schedule.json")},
                                  {"NIMBLE_STATS", path("stats.json")},
                                  {"NIMBLE_TUNE", "off"}},
                                 folder_, options_.patience_s);
    if (!run.failure.empty()) fail(run.hung ? "hung" : "run", "replayed as recorded: " + run.failure, run.log);
    std::ifstream file(path("stats.json"));
    return file && nlohmann::json::parse(file).at("steps_replayed") != 0;
  }

  std::string without_an_edge(const std::string& text) {
    nlohmann::ordered_json schedule = nlohmann::ordered_json::parse(text);
    std::vector<nlohmann::ordered_json*> segments;
    for (auto& segment : schedule["segments"])
      if (!segment["edges"].empty()) segments.push_back(&segment);
    if (segments.empty()) return text;
    auto& edges = (*segments[random_.below(static_cast<std::uint32_t>(segments.size()))])["edges"];
    edges.erase(random_.below(static_cast<std::uint32_t>(edges.size())));
    outcome_.broken = true;
    return schedule.dump();
  }

  void note_script() {
    static constexpr const char* kThreads[] = {"one", "in turn", "freely"};
    outcome_.streams = script_.program.streams;
    outcome_.threads = kThreads[static_cast<int>(script_.threads)];
    outcome_.fault = name_of(script_.fault.kind);
    for (const ChangeKind kind : script_.changes) ++outcome_.changes[name_of(kind)];
  }

  std::optional<ScriptResult> ask_plain(const std::string& order, bool races, const Told& fatal = {}) {
    const std::string answer = plain_.ask(fmt::format("disorder {} {} {} {} {} {}", order, races ? 1 : 0, fatal.step,
                                                      fatal.at, fatal.result, words_of(seed_, attempt_, cuts_)));
    if (answer.empty() || answer == "failed") {
      fail("program", "it fails without Nimble in order " + order);
      return std::nullopt;
    }
    std::string bytes;
    for (std::size_t i = 0; i + 1 < answer.size(); i += 2)
      bytes += static_cast<char>(std::stoi(answer.substr(i, 2), nullptr, 16));
    return unpack_result(bytes);
  }

  // The expected results, in two orders: a program whose results depend on the order is no test.
  bool run_plain() {
    const auto in_order = ask_plain("0", false), in_another = ask_plain(order(), true);
    if (!in_order || !in_another) return false;
    expected_ = *in_order;
    const FaultKind fault = script_.fault.kind;
    if (in_another->digest != expected_.digest || in_another->digests != expected_.digests)
      fail("program", "it computes something else in another order");
    // When a fault is met depends on when the op runs.
    if (fault != FaultKind::runs && in_another->errors != expected_.errors)
      fail("program", "it meets other errors in another order");
    if (!is_fatal(fault) && in_another->races + in_another->illegal != 0)
      fail("program",
           fmt::format("by itself it has {} races and {} illegal accesses", in_another->races, in_another->illegal));
    const bool told = fault == FaultKind::refused || is_fatal(fault);
    if (told != !expected_.errors.empty() || (fault == FaultKind::refused && expected_.errors.size() != 1))
      fail("program", "it is not told what it should be: " + text_of(expected_.errors));
    return outcome_.failures.empty();
  }

  Settings draw_settings() {
    const bool many = script_.steps.size() > 45, of_memory = script_.fault.kind != FaultKind::none && !by_salt();
    Settings settings = {
        {"NIMBLE_MODE", "replay"}, {"NIMBLE_SCHEDULE", path("schedule.json")}, {"NIMBLE_STATS", path("stats.json")}};
    const bool tuned = random_.percent(many ? 80 : 15);
    settings.emplace_back("NIMBLE_TUNE", !tuned ? "off" : random_.percent(50) ? "start" : "always");
    const bool audited = random_.percent(20);
    // An audit makes copies that look like the program's.
    settings.emplace_back("NIMBLE_AUDIT", audited && !of_memory ? std::to_string(random_.between(1, 4)) : "0");
    settings.emplace_back("NIMBLE_HOLD_US", random_.percent(70) ? "60000000" : random_.percent(50) ? "1000" : "200");
    settings.emplace_back("SIMCUDA_RACES", random_.percent(50) ? "1" : "0");
    settings.emplace_back("SIMCUDA_SEED", random_.percent(15) ? "0" : order());
    return settings;
  }
  bool by_salt() const {
    const Fault& fault = script_.fault;
    return fault.kind == FaultKind::memory || fault.kind == FaultKind::own ||
           launches(script_.steps[fault.step][fault.op].kind);
  }

  void replay(const Script& script) {
    const Settings settings = draw_settings();
    std::string what = "replayed with";
    for (std::size_t i = 3; i < settings.size(); ++i) what += " " + settings[i].first + "=" + settings[i].second;
    std::remove(path("stats.json").c_str());
    const Run run = run_in_child(
        [&] {
          const ScriptResult result = run_script(script, Faults::all);
          while (options_.what == BreakDisorder::hang) pause();
          return pack(result);
        },
        settings, folder_, options_.patience_s);
    if (!run.failure.empty()) return fail(run.hung ? "hung" : "run", what + ": " + run.failure, run.log);
    const ScriptResult result = unpack_result(run.answer);
    ++outcome_.runs;
    std::ifstream file(path("stats.json"));
    if (!file) return fail("run", what + " it wrote no counters", run.log);
    const nlohmann::json stats = nlohmann::json::parse(file);
    add(stats, result);
    compare(result, what, run.log);
    const std::string aside = stats.at("stood_aside");
    const bool tuned = aside.find("own order") != std::string::npos && settings[3].second != "off";
    if (!aside.empty() && result.failures == 0 && !tuned) fail("aside", what + " it stands aside: " + aside, run.log);
  }

  void compare(const ScriptResult& result, const std::string& what, const std::string& log) {
    const Fault& fault = script_.fault;
    ScriptResult expected = expected_;
    std::string wrong = told_wrongly(result);
    if (wrong.empty() && is_fatal(fault.kind)) {
      // From where it is told each call answers, and all is, what it is without Nimble if the context fails there.
      const auto from_there = ask_plain("0", false, result.errors[0]);
      if (!from_there) return;
      expected = *from_there;
      if (result.errors != expected.errors) wrong = "after the fault the calls' answers differ";
    }
    if (!wrong.empty())
      fail("errors",
           fmt::format("{} {}: {}; without Nimble {}", what, wrong, text_of(result.errors), text_of(expected.errors)),
           log);
    if (result.digests != expected.digests) {
      std::string which;
      for (std::size_t i = 0; i < result.digests.size(); ++i)
        if (result.digests[i] != expected.digests[i]) which += fmt::format(" {}", i);
      fail("digest", what + " other contents of buffers" + which, log);
    } else if (result.digest != expected.digest) {
      fail("digest", what + " the host reads something else", log);
    }
    if (!is_fatal(fault.kind) && result.races + result.illegal != 0)
      fail("race", fmt::format("{} it has {} races and {} illegal accesses", what, result.races, result.illegal), log);
  }

  // What is wrong with when and how often the program was told of an error; empty if nothing is.
  std::string told_wrongly(const ScriptResult& result) const {
    const Fault& fault = script_.fault;
    if (fault.kind != FaultKind::refused && !is_fatal(fault.kind))
      return result.errors.empty() ? "" : "it is told of errors that are not its own";
    if (result.failures != 1) return fmt::format("{} calls failed instead of 1", result.failures);
    if (result.errors.empty()) return "an error was lost";
    const Told& told = result.errors[0];
    if (told.result != fault.result) return "another error";
    if (told < Told{fault.step, fault.op + 1, told.result}) return "it is told too early";
    if (Told{told.step, told.at, 0} > Told{fault.step, told_by(), 0}) return "it is told too late";
    return is_fatal(fault.kind) || result.errors.size() == 1 ? "" : "it is told more than once";
  }

  // The first call after the op that waits for everything.
  std::uint32_t told_by() const {
    const std::vector<Op>& ops = script_.steps[script_.fault.step];
    for (std::uint32_t i = script_.fault.op; i < ops.size(); ++i) {
      const bool waits =
          ops[i].kind == OpKind::replace ||
          (ops[i].kind == OpKind::synchronize && (script_.program.streams > 1 || ops[script_.fault.op].stream == 0));
      if (waits) return i + 1;
    }
    return place_of_wait(script_);
  }

  void add(const nlohmann::json& stats, const ScriptResult& result) {
    outcome_.steps += script_.steps.size();
    outcome_.disturbed +=
        static_cast<std::uint64_t>(std::count(script_.disturbed.begin(), script_.disturbed.end(), true));
    for (const auto& [name, to] : {std::pair{"steps_replayed", &outcome_.steps_replayed},
                                   {"ops_replayed", &outcome_.ops_replayed},
                                   {"graph_launches", &outcome_.graph_launches},
                                   {"node_updates", &outcome_.node_updates},
                                   {"flushes", &outcome_.flushes},
                                   {"watchdog_flushes", &outcome_.watchdog_flushes},
                                   {"steps_audited", &outcome_.steps_audited}})
      *to += stats.at(name).get<std::uint64_t>();
    if (stats.contains("kinds"))
      for (std::size_t kind = 1; kind < stats["kinds"].size(); ++kind)
        outcome_.steps_of_other_kinds += stats["kinds"][kind].at("steps_replayed").get<std::uint64_t>();
    for (const auto& [reason, count] : stats.at("reasons").items())
      outcome_.divergences[reason] += count.get<std::uint64_t>();
    outcome_.faults_met += result.failures != 0 ? 1 : 0;
    const std::string aside = stats.at("stood_aside");
    if (!aside.empty()) ++outcome_.stood_aside[std::regex_replace(aside, std::regex("[0-9.]+"), "N")];
  }

  const std::uint64_t seed_;
  const Cuts& cuts_;
  const DisorderOptions& options_;
  PlainRuns& plain_;
  const std::string folder_;
  Random random_;
  std::uint32_t attempt_ = 0;
  Script script_;
  ScriptResult expected_;
  DisorderOutcome outcome_;
};

}  // namespace

DisorderOutcome check_disorder(std::uint64_t seed, const Cuts& cuts, const DisorderOptions& options, PlainRuns& plain,
                               const std::string& folder) {
  return Check(seed, cuts, options, plain, folder).run();
}

std::string describe_disorder(std::uint64_t seed, std::uint32_t attempts, const Cuts& cuts) {
  return describe(make_script(seed, attempts - 1, cuts));
}

}  // namespace nimble::oracle
