#include "tests/oracle/check/check_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "analyzer/check/checker.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "tests/oracle/program/host_times.h"
#include "tests/oracle/program/random.h"
#include "tests/oracle/run/runner.h"
#include "tests/simcuda/simcuda.h"

namespace nimble::oracle {
namespace {

using analyzer::Analysis;

// What a kernel without proof touches, by a rule that lies.
constexpr const char* kLie = R"({"nimble_rules": 1, "rules": [
  {"kernel": "_Z.*(map|sometimes|strided).*", "params": ["in", "in", "value", "value"]},
  {"kernel": "_Z.*gather.*", "params": ["in", "in", "in", "value", "value"]},
  {"kernel": "_Z.*(in_place|fill|backwards).*", "params": ["in", "value", "value"]},
  {"kernel": "_Z.*(accumulate|reduce|scatter|bytes).*", "params": ["in", "in", "value"]}]})";

// Whether the op was given a pointer to the object, and does not only reach it by what lies in memory.
bool is_given(const Analysis& analysis, std::uint32_t op, std::uint32_t object) {
  if (analysis.evidence.accesses.ops[op].evidence == Evidence::exact) return true;
  const auto pointers = analysis.input.table->pointers(analysis.step.calls()[op]);
  return std::any_of(pointers.begin(), pointers.end(), [&](const analyzer::PointerWord& pointer) {
    return analysis.objects.find(pointer.object) == object;
  });
}

struct RunOfProgram : Run {
  std::uint64_t digest = 0, races = 0, illegal = 0;
  std::vector<ExactOp> accesses;  // where they were asked for
};

class Check {
 public:
  Check(std::uint64_t seed, const Limits& limits, const CheckOptions& options, PlainRuns& plain, std::string folder)
      : program_(make_program(seed, limits)),
        recorded_(program_),
        limits_(limits),
        options_(options),
        plain_(plain),
        folder_(std::move(folder)),
        random_(seed ^ 0xc0ffee) {}

  CheckOutcome run() {
    outcome_.ops = static_cast<std::uint32_t>(program_.ops.size());
    outcome_.streams = program_.streams;
    try {
      // What is calm is recorded: the replay then meets steps that are not as the recorded ones were.
      if (program_.calm != 0) recorded_.repeats = program_.calm;
      Limits recorded = limits_;
      recorded.repeats = recorded_.repeats;
      expected_ = plain_digest(recorded);
      if (expected_ == "failed") {
        fail("program", "it fails without Nimble");
      } else if (record()) {
        if (program_.calm != 0) expected_ = plain_digest(limits_);
        analyze();
      }
    } catch (const std::exception& error) {
      fail("analyzer", error.what());
    }
    return std::move(outcome_);
  }

 private:
  void fail(const std::string& check, const std::string& what, const std::string& log = {}) {
    outcome_.failures.push_back(check + ": " + what);
    if (!log.empty()) outcome_.log = log;
  }

  std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string order() { return std::to_string(1 + random_.below(1000000)); }

  // Of a run without the shim: 16 digits, or "failed".
  std::string plain_digest(const Limits& limits) {
    std::string line = fmt::format("{} {} {}", program_.seed, limits.ops, limits.repeats);
    for (const std::uint32_t op : limits.without) line += fmt::format(" {}", op);
    const std::string answer = plain_.ask(line);
    return answer.empty() ? "failed" : answer;
  }

  RunOfProgram run_in_child(const Program& program, const Settings& settings, bool accesses) {
    RunOfProgram run;
    static_cast<Run&>(run) = oracle::run_in_child(
        [&] {
          const std::uint64_t digest = run_program(program);
          const std::uint64_t numbers[] = {digest, simcuda_race_count(), simcuda_illegal_access_count()};
          std::string bytes(reinterpret_cast<const char*>(numbers), sizeof numbers);
          return accesses ? bytes + pack(exact_of_process()) : bytes;
        },
        settings, folder_);
    if (!run.failure.empty()) return run;
    std::uint64_t numbers[3];
    if (run.answer.size() < sizeof numbers) throw std::runtime_error("a run that told too little");
    std::memcpy(numbers, run.answer.data(), sizeof numbers);
    run.digest = numbers[0];
    run.races = numbers[1];
    run.illegal = numbers[2];
    if (accesses) run.accesses = unpack(run.answer.substr(sizeof numbers));
    return run;
  }

  // Whether the run went well; what it computed is checked as well.
  bool well(const RunOfProgram& run, const std::string& what) {
    if (!run.failure.empty()) {
      fail("run", what + ": " + run.failure, run.log);
      return false;
    }
    const std::string digest = fmt::format("{:016x}", run.digest);
    if (digest != expected_)
      fail("digest", fmt::format("{} computes {} instead of {}", what, digest, expected_), run.log);
    return true;
  }

  bool record() {
    const std::string seed = order();
    RunOfProgram run = run_in_child(recorded_,
                                    {{"NIMBLE_MODE", "record"},
                                     {"NIMBLE_TRACE", path("trace.json")},
                                     {"SIMCUDA_ACCESS", "1"},
                                     {"SIMCUDA_RACES", "1"},
                                     {"SIMCUDA_SEED", seed}},
                                    true);
    if (!well(run, "recorded in order " + seed)) return false;
    if (run.races + run.illegal != 0)
      fail("program", fmt::format("by itself it has {} races and {} illegal accesses", run.races, run.illegal),
           run.log);
    exact_ = std::move(run.accesses);
    return true;
  }

  void analyze() {
    analyzer::AnalysisOptions options;
    options.trust = Evidence::observed;  // all that can be believed is to be right
    if (options_.what == Break::access) {
      std::ofstream(path("rules.json")) << kLie;
      options.rules.read(path("rules.json"));
    }
    analyzer::TraceFile file = analyzer::read_trace(path("trace.json"));
    if (!file.trace.complete || file.trace.dropped != 0) return fail("run", "its trace is not whole");
    invent_host_times(file.trace, Random(program_.seed ^ 0xdead));
    Analysis analysis = analyzer::analyze(std::move(file), options);
    outcome_.accesses = compare(analysis, exact_, options);
    for (const std::string& failure : outcome_.accesses.failures) fail("accesses", failure);
    if (outcome_.accesses.unrecorded != 0) fail("run", "the trace does not hold " + outcome_.accesses.first_unrecorded);
    outcome_.step = analysis.step.period != 0;
    outcome_.step_ops = analysis.step.period;
    outcome_.why_no_schedule = analysis.plan.why_no_schedule;
    if (!outcome_.step) return;
    // Everything in it that conflicts is ordered by the program itself. Kernels that may follow pointers in memory,
    // such as those that kernels got in structures and may have stored, are assumed to reach more than the program's
    // author had in mind, or anything.
    const auto& ops = analysis.evidence.accesses.ops;
    const auto& races = analysis.order.dependencies.races;
    const bool all_known = program_.table.empty() && std::none_of(ops.begin(), ops.end(), [](const auto& op) {
                             return op.role == analyzer::OpRole::barrier;
                           });
    const bool widely = program_.ordered_widely && all_known;
    const bool too_many = std::any_of(races.begin(), races.end(), [&](const analyzer::Race& race) {
      return program_.streams == 1 ||
             (widely && is_given(analysis, race.first, race.object) && is_given(analysis, race.second, race.object));
    });
    if (too_many) fail("analyzer", "it takes the program to race: " + analysis.plan.why_no_schedule);
    if (analysis.plan.status != analyzer::kExitOk) {
      if (program_.streams == 1 && program_.stream_kind != StreamKind::blocking)
        fail("analyzer", "no schedule for a step on one stream: " + analysis.plan.why_no_schedule);
      return;
    }
    schedule(analysis);
    for (std::uint32_t i = 0; i < options_.orders; ++i) replay(i % 3 != 2);
  }

  void schedule(Analysis& analysis) {
    std::string text = analyzer::schedule_text(analyzer::build_schedule(analysis));
    if (options_.what == Break::dependency) text = without_an_edge(text);
    outcome_.broken |= options_.what == Break::access;
    outcome_.schedule = true;
    std::ofstream(path("schedule.json")) << text;
    const auto check = [&](const char* name) {
      const auto result = analyzer::check_schedule(analysis, text, "schedule.json");
      if (result.unordered)
        fail(name, fmt::format("ops {} and {} are not ordered: {}", result.unordered->first, result.unordered->second,
                               result.unordered->why));
    };
    check("checker");
    analysis.evidence.accesses = exact_accesses(analysis, exact_);
    check("truth");
  }

  std::string without_an_edge(const std::string& text) {
    nlohmann::ordered_json schedule = nlohmann::ordered_json::parse(text);
    std::vector<std::pair<std::size_t, std::size_t>> edges;
    for (std::size_t s = 0; s < schedule["segments"].size(); ++s)
      for (std::size_t e = 0; e < schedule["segments"][s]["edges"].size(); ++e) edges.emplace_back(s, e);
    if (edges.empty()) return text;
    const auto [segment, edge] = edges[random_.below(static_cast<std::uint32_t>(edges.size()))];
    schedule["segments"][segment]["edges"].erase(edge);
    outcome_.broken = true;
    return schedule.dump();
  }

  void replay(bool races) {
    const std::string seed = order();
    std::remove(path("stats.json").c_str());
    const RunOfProgram run = run_in_child(program_,
                                          {{"NIMBLE_MODE", "replay"},
                                           {"NIMBLE_SCHEDULE", path("schedule.json")},
                                           {"NIMBLE_STATS", path("stats.json")},
                                           {"NIMBLE_TUNE", program_.seed % 3 == 0 ? "start" : "off"},
                                           {"SIMCUDA_RACES", races ? "1" : "0"},
                                           {"SIMCUDA_SEED", seed}},
                                          false);
    if (!well(run, "replayed in order " + seed)) return;
    if (run.races + run.illegal != 0)
      fail("race",
           fmt::format("replayed in order {} it has {} races and {} illegal accesses", seed, run.races, run.illegal),
           run.log);
    std::ifstream file(path("stats.json"));
    if (!file) return fail("run", "the replay wrote no counters", run.log);
    const nlohmann::json stats = nlohmann::json::parse(file);
    ++outcome_.replays;
    outcome_.steps_replayed += stats.at("steps_replayed").get<std::uint64_t>();
    outcome_.graph_launches += stats.at("graph_launches").get<std::uint64_t>();
    outcome_.divergences += stats.at("divergences").get<std::uint64_t>();
    outcome_.stood_aside = stats.at("stood_aside").get<std::string>();
  }

  const Program program_;
  Program recorded_;
  const Limits& limits_;
  const CheckOptions& options_;
  PlainRuns& plain_;
  const std::string folder_;
  Random random_;
  std::string expected_;
  std::vector<ExactOp> exact_;
  CheckOutcome outcome_;
};

}  // namespace

CheckOutcome check_program(std::uint64_t seed, const Limits& limits, const CheckOptions& options, PlainRuns& plain,
                           const std::string& folder) {
  return Check(seed, limits, options, plain, folder).run();
}

}  // namespace nimble::oracle
