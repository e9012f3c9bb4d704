// Checks random programs, one after another: see check_program.h. What scripts/soak runs.
//
//   check_programs [options] SEED [COUNT]
//
//   --orders N      adversarial orders of each replay (3)
//   --ops N         no more than so many of the ops that are drawn
//   --without A,B   leave these ops out
//   --break WHAT    break something on purpose: dependency, access
//   --shrink        of each program that fails, find a smaller one that fails as well
//   --json          one JSON object per program on standard output; else what fails, and a summary
//   --keep DIR      leave the files of the last program there: trace, rules, schedule, counters, log
//
// Loads libnimble.so and the simulated driver by itself, from the build that it is part of. Exit status: 0 all is well,
// 1 some program fails, 2 bad usage.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/oracle/check/check_program.h"

namespace nimble::oracle {
namespace {

struct Arguments {
  std::uint64_t seed = 0, count = 1;
  Limits limits;
  CheckOptions check;
  bool shrink = false, json = false;
  std::string keep;
};

bool parse(int argc, char** argv, Arguments& arguments) {
  int positions = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> const char* { return i + 1 < argc ? argv[++i] : ""; };
    const auto number = [](const char* text, auto& into) {
      char* end = nullptr;
      into = static_cast<std::decay_t<decltype(into)>>(std::strtoull(text, &end, 10));
      return *text != '\0' && *end == '\0';
    };
    if (word == "--shrink") {
      arguments.shrink = true;
    } else if (word == "--json") {
      arguments.json = true;
    } else if (word == "--keep") {
      arguments.keep = value();
      if (arguments.keep.empty()) return false;
    } else if (word == "--orders") {
      if (!number(value(), arguments.check.orders)) return false;
    } else if (word == "--ops") {
      if (!number(value(), arguments.limits.ops)) return false;
    } else if (word == "--without") {
      std::istringstream list(value());
      for (std::string part; std::getline(list, part, ',');) {
        arguments.limits.without.push_back(0);
        if (!number(part.c_str(), arguments.limits.without.back())) return false;
      }
    } else if (word == "--break") {
      const std::string what = value();
      if (what != "dependency" && what != "access") return false;
      arguments.check.what = what == "access" ? Break::access : Break::dependency;
    } else if (word.rfind("--", 0) == 0 || positions == 2 ||
               !number(word.c_str(), positions == 0 ? arguments.seed : arguments.count)) {
      return false;
    } else {
      ++positions;
    }
  }
  return positions > 0;
}

nlohmann::ordered_json json_of(std::uint64_t seed, const CheckOutcome& outcome) {
  nlohmann::ordered_json json;
  json["seed"] = seed;
  json["failures"] = outcome.failures;
  json["ops"] = outcome.ops;
  json["streams"] = outcome.streams;
  json["step_ops"] = outcome.step_ops;
  json["schedule"] = outcome.schedule;
  json["why_no_schedule"] = outcome.why_no_schedule;
  json["broken"] = outcome.broken;
  json["replays"] = outcome.replays;
  json["steps_replayed"] = outcome.steps_replayed;
  json["graph_launches"] = outcome.graph_launches;
  json["divergences"] = outcome.divergences;
  json["stood_aside"] = outcome.stood_aside;
  json["widest"] = outcome.accesses.widest;
  json["widest_op"] = outcome.accesses.widest_op;
  json["pairs"] = {outcome.accesses.pairs_inferred, outcome.accesses.pairs_exact};
  for (int e = 0; e < kEvidences; ++e) {
    const Width& w = outcome.accesses.width[static_cast<std::size_t>(e)];
    json["width"][std::string(name(static_cast<Evidence>(e)))] = {w.ops, w.inferred, w.exact, w.inferred_written,
                                                                  w.exact_written};
  }
  return json;
}

// Leaves out ops as long as the program fails without them in the same way.
Limits shrink(const Arguments& arguments, const CheckOutcome& first, PlainRuns& plain, const std::string& folder,
              std::uint64_t seed) {
  const auto kind = [](const CheckOutcome& outcome) {
    return outcome.failures.empty() ? std::string() : outcome.failures[0].substr(0, outcome.failures[0].find(':'));
  };
  const auto fails = [&](const Limits& limits) {
    return kind(check_program(seed, limits, arguments.check, plain, folder)) == kind(first);
  };
  Limits limits = arguments.limits;
  const std::uint32_t drawn = drawn_ops(seed);
  for (std::uint32_t size = std::max(1u, drawn / 2);; size /= 2) {
    for (std::uint32_t begin = 0; begin < drawn; begin += size) {
      Limits tried = limits;
      for (std::uint32_t op = begin; op < std::min(drawn, begin + size); ++op)
        if (std::find(limits.without.begin(), limits.without.end(), op) == limits.without.end())
          tried.without.push_back(op);
      if (tried.without.size() > limits.without.size() && fails(tried)) limits = tried;
    }
    if (size == 1) break;
  }
  return limits;
}

void tell(std::uint64_t seed, const CheckOutcome& outcome) {
  for (const std::string& failure : outcome.failures)
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.c_str());
  if (!outcome.log.empty()) std::printf("%s", outcome.log.c_str());
}

int check_all(const Arguments& arguments) {
  std::string folder = arguments.keep;
  if (folder.empty()) {
    std::string pattern = std::filesystem::temp_directory_path() / "nimble_oracle_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for files");
    folder = pattern;
  } else {
    std::filesystem::create_directories(folder);
  }
  PlainRuns plain;
  std::uint64_t failed = 0, replayed = 0;
  for (std::uint64_t seed = arguments.seed; seed < arguments.seed + arguments.count; ++seed) {
    const CheckOutcome outcome = check_program(seed, arguments.limits, arguments.check, plain, folder);
    failed += outcome.failures.empty() ? 0 : 1;
    replayed += outcome.steps_replayed != 0 ? 1 : 0;
    if (arguments.json) {
      std::printf("%s\n", json_of(seed, outcome).dump().c_str());
      std::fflush(stdout);
    } else {
      tell(seed, outcome);
    }
    if (outcome.failures.empty() || !arguments.shrink) continue;
    const Limits limits = shrink(arguments, outcome, plain, folder, seed);
    std::string without;
    for (std::uint32_t op : limits.without) without.append(without.empty() ? "" : ",").append(std::to_string(op));
    const CheckOutcome small = check_program(seed, limits, arguments.check, plain, folder);
    const char* broken = arguments.check.what == Break::nothing      ? ""
                         : arguments.check.what == Break::dependency ? "--break dependency "
                                                                     : "--break access ";
    std::printf("smaller: check_programs %s%s--without %s %llu\n", broken,
                limits.ops == Limits().ops ? "" : fmt::format("--ops {} ", limits.ops).c_str(), without.c_str(),
                static_cast<unsigned long long>(seed));
    tell(seed, small);
    std::printf("%s", describe(make_program(seed, limits)).c_str());
  }
  if (arguments.keep.empty()) std::filesystem::remove_all(folder);
  if (!arguments.json) {
    std::printf("%llu programs, %llu of them replayed, %llu failed\n", static_cast<unsigned long long>(arguments.count),
                static_cast<unsigned long long>(replayed), static_cast<unsigned long long>(failed));
    if (arguments.count == 1) {
      const CheckOutcome outcome = check_program(arguments.seed, arguments.limits, arguments.check, plain,
                                                 std::filesystem::temp_directory_path());
      std::printf("%s", text_of(outcome.accesses).c_str());
    }
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nimble::oracle

int main(int argc, char** argv) {
  nimble::oracle::Arguments arguments;
  if (!nimble::oracle::parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: check_programs [--orders N] [--ops N] [--without A,B] [--break dependency|access] [--shrink] "
                 "[--json] [--keep DIR] SEED [COUNT]\n");
    return 2;
  }
  try {
    nimble::oracle::preload_nimble(argv, std::getenv("NIMBLE_TEST_PRELOAD"));
    return nimble::oracle::check_all(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_programs: %s\n", error.what());
    return 1;
  }
}
