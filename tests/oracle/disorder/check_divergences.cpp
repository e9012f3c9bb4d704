// Checks random programs that do not keep to their steps, one after another: see check_disorder.h. What scripts/soak
// runs.
//
// Loads libnimble.so and the simulated driver by itself, from the build that it is part of. Exit status: 0 all is well,
// 1 some program fails, 2 bad usage.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/oracle/disorder/check_disorder.h"

namespace nimble::oracle {
namespace {

struct Arguments {
  std::uint64_t seed = 0, count = 1;
  Cuts cuts;
  DisorderOptions check;
  bool shrink = false, json = false, describe = false;
  std::string keep, what_breaks;
};

const std::map<std::string, BreakDisorder> kBreaks = {{"dependency", BreakDisorder::dependency},
                                                      {"change", BreakDisorder::change},
                                                      {"error", BreakDisorder::error},
                                                      {"hang", BreakDisorder::hang}};

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("seed", a.seed, "The seed of the first program")->required();
  app.add_option("count", a.count, "How many programs (1)");
  app.add_option("--runs", a.check.runs, "Runs under replay of each, in orders and with settings of their own (2)");
  app.add_option("--patience", a.check.patience_s, "Seconds after which a run counts as hung (20)");
  app.add_option("--break", a.what_breaks, "Break something on purpose")->check(CLI::IsMember(kBreaks));
  app.add_option("--ops", a.cuts.limits.ops, "No more than so many of the step's ops");
  app.add_option("--without", a.cuts.limits.without, "Leave these ops out of the step")->delimiter(',');
  app.add_option("--steps", a.cuts.steps, "No more than so many steps");
  app.add_option("--without-changes", a.cuts.without, "Leave these changes out")->delimiter(',');
  app.add_flag("--no-fault", a.cuts.no_fault, "No call fails");
  app.add_flag("--one-thread", a.cuts.one_thread, "One thread issues everything");
  app.add_flag("--shrink", a.shrink, "Of each program that fails, find a smaller one that fails as well");
  app.add_flag("--json", a.json, "One JSON object per program on standard output");
  app.add_flag("--describe", a.describe, "Say what each program does");
  app.add_option("--keep", a.keep, "Leave the files of the last program in this folder");
}

nlohmann::ordered_json json_of(std::uint64_t seed, const DisorderOutcome& o) {
  return {{"seed", seed},
          {"failures", o.failures},
          {"schedule", o.schedule},
          {"broken", o.broken},
          {"attempts", o.attempts},
          {"streams", o.streams},
          {"kinds", o.kinds},
          {"threads", o.threads},
          {"fault", o.fault},
          {"changes", o.changes},
          {"runs", o.runs},
          {"steps", o.steps},
          {"disturbed", o.disturbed},
          {"steps_replayed", o.steps_replayed},
          {"steps_of_other_kinds", o.steps_of_other_kinds},
          {"ops_replayed", o.ops_replayed},
          {"graph_launches", o.graph_launches},
          {"node_updates", o.node_updates},
          {"flushes", o.flushes},
          {"watchdog_flushes", o.watchdog_flushes},
          {"steps_audited", o.steps_audited},
          {"faults_met", o.faults_met},
          {"divergences", o.divergences},
          {"stood_aside", o.stood_aside}};
}

class Tool {
 public:
  Tool(const Arguments& arguments, std::string folder) : arguments_(arguments), folder_(std::move(folder)) {}

  int run() {
    std::uint64_t failed = 0, replayed = 0;
    for (std::uint64_t seed = arguments_.seed; seed < arguments_.seed + arguments_.count; ++seed) {
      const DisorderOutcome outcome = check(seed, arguments_.cuts);
      failed += outcome.failures.empty() ? 0 : 1;
      replayed += outcome.steps_replayed != 0 ? 1 : 0;
      if (arguments_.json) {
        std::printf("%s\n", json_of(seed, outcome).dump().c_str());
        std::fflush(stdout);
      } else {
        tell(seed, outcome);
      }
      if (arguments_.describe && outcome.schedule)
        std::printf("%s", describe_disorder(seed, outcome.attempts, arguments_.cuts).c_str());
      if (arguments_.shrink && !outcome.failures.empty()) shrink(seed, outcome);
    }
    if (!arguments_.json)
      std::printf("%llu programs, %llu of them replayed, %llu failed\n",
                  static_cast<unsigned long long>(arguments_.count), static_cast<unsigned long long>(replayed),
                  static_cast<unsigned long long>(failed));
    return failed == 0 ? 0 : 1;
  }

 private:
  DisorderOutcome check(std::uint64_t seed, const Cuts& cuts) {
    return check_disorder(seed, cuts, arguments_.check, plain_, folder_);
  }

  static void tell(std::uint64_t seed, const DisorderOutcome& outcome) {
    for (const std::string& failure : outcome.failures)
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.c_str());
    if (!outcome.log.empty()) std::printf("%s", outcome.log.c_str());
  }

  static std::string kind_of(const DisorderOutcome& outcome) {
    return outcome.failures.empty() ? std::string() : outcome.failures[0].substr(0, outcome.failures[0].find(':'));
  }

  // Leaves out what the program fails without in the same way.
  void shrink(std::uint64_t seed, const DisorderOutcome& first) {
    const std::string kind = kind_of(first);
    Cuts cuts = arguments_.cuts;
    const auto try_cuts = [&](const Cuts& tried) {
      if (kind_of(check(seed, tried)) != kind) return false;
      cuts = tried;
      return true;
    };
    Cuts tried = cuts;
    tried.no_fault = true;
    try_cuts(tried);
    tried = cuts;
    tried.one_thread = true;
    try_cuts(tried);
    for (std::uint32_t steps = 1, most = 128; steps < most;) {  // the fewest that are enough, as if fewer never were
      tried = cuts;
      tried.steps = (steps + most) / 2;
      try_cuts(tried) ? most = tried.steps : steps = tried.steps + 1;
    }
    const Script script = make_script(seed, first.attempts - 1, cuts);
    leave_out(
        static_cast<std::uint32_t>(script.changes.size()), cuts, [](Cuts& c) { return &c.without; }, try_cuts);
    Limits whole;
    leave_out(
        drawn_ops(base_of(seed, first.attempts - 1, whole).seed, script.program.streams > 1), cuts,
        [](Cuts& c) { return &c.limits.without; }, try_cuts);
    const DisorderOutcome small = check(seed, cuts);
    std::printf("smaller: check_divergences %s\n", words_for(seed, cuts).c_str());
    tell(seed, small);
    std::printf("%s", describe_disorder(seed, small.attempts, cuts).c_str());
  }

  template <class List, class Try>
  static void leave_out(std::uint32_t all, Cuts& cuts, List list, Try try_cuts) {
    for (std::uint32_t size = std::max(1u, all / 2);; size /= 2) {
      for (std::uint32_t begin = 0; begin < all; begin += size) {
        Cuts tried = cuts;
        std::vector<std::uint32_t>& without = *list(tried);
        const std::size_t before = without.size();
        for (std::uint32_t i = begin; i < std::min(all, begin + size); ++i)
          if (std::find(without.begin(), without.end(), i) == without.end()) without.push_back(i);
        if (without.size() != before) try_cuts(tried);
      }
      if (size == 1) return;
    }
  }

  std::string words_for(std::uint64_t seed, const Cuts& cuts) const {
    std::string words;
    if (!arguments_.what_breaks.empty()) words += "--break " + arguments_.what_breaks + " ";
    if (arguments_.check.runs != DisorderOptions().runs) words += fmt::format("--runs {} ", arguments_.check.runs);
    if (cuts.limits.ops != Limits().ops) words += fmt::format("--ops {} ", cuts.limits.ops);
    if (cuts.steps != Cuts().steps) words += fmt::format("--steps {} ", cuts.steps);
    if (cuts.no_fault) words += "--no-fault ";
    if (cuts.one_thread) words += "--one-thread ";
    if (!cuts.without.empty()) words += fmt::format("--without-changes {} ", fmt::join(cuts.without, ","));
    if (!cuts.limits.without.empty()) words += fmt::format("--without {} ", fmt::join(cuts.limits.without, ","));
    return words + std::to_string(seed);
  }

  const Arguments& arguments_;
  const std::string folder_;
  PlainRuns plain_;
};

int run(const Arguments& arguments) {
  std::string folder = arguments.keep;
  if (folder.empty()) {
    std::string pattern = std::filesystem::temp_directory_path() / "nimble_oracle_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for files");
    folder = pattern;
  } else {
    std::filesystem::create_directories(folder);
  }
  const int status = Tool(arguments, folder).run();
  if (arguments.keep.empty()) std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace nimble::oracle

int main(int argc, char** argv) {
  nimble::oracle::Arguments arguments;
  CLI::App app("Checks random programs that do not keep to their steps.", "check_divergences");
  nimble::oracle::add_options(app, arguments);
  try {
    app.parse(argc, argv);
    if (!arguments.what_breaks.empty()) arguments.check.what = nimble::oracle::kBreaks.at(arguments.what_breaks);
    nimble::oracle::preload_nimble(argv, std::getenv("NIMBLE_TEST_PRELOAD"));
    return nimble::oracle::run(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_divergences: %s\n", error.what());
    return 1;
  }
}
