// Runs one random program as a program of its own.
//
//   random_steps [--describe] SEED [OPS [REPEATS [WITHOUT...]]]
//
// prints its digest, or what it does. OPS: no more than so many of the drawn ops; REPEATS of the step, 0: as drawn;
// WITHOUT: the numbers of ops to leave out.
//
//   random_steps --serve
//
// reads such arguments from lines of standard input, runs each in a child of its own, and writes one line per line: the
// digest, or "failed". A line `disorder ORDER RACES STEP AT CURESULT WORDS` runs the program in disorder that the words
// stand for (disorder.h), in this order of the simulated driver, and is answered with its result, as hexadecimal
// digits. With a CUresult other than 0 the context fails there (script_runner.h), and nothing else does.
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/oracle/disorder/disorder.h"
#include "tests/oracle/disorder/script_runner.h"
#include "tests/oracle/program/program.h"
#include "tests/oracle/run/runner.h"

using namespace nimble::oracle;

namespace {

bool parse(std::istringstream words, std::uint64_t& seed, Limits& limits) {
  if (!(words >> seed)) return false;
  if (std::uint32_t ops = 0; words >> ops) limits.ops = ops;
  if (std::uint32_t repeats = 0; words >> repeats) limits.repeats = repeats;
  for (std::uint32_t without = 0; words >> without;) limits.without.push_back(without);
  return words.eof();
}

constexpr unsigned kPatienceSeconds = 120;

int run_in_order(std::istringstream words) {
  std::string order, races;
  Told fatal;
  std::uint64_t seed = 0;
  std::uint32_t attempt = 0;
  Cuts cuts;
  if (!(words >> order >> races >> fatal.step >> fatal.at >> fatal.result) || !read(words, seed, attempt, cuts))
    return 2;
  setenv("SIMCUDA_SEED", order.c_str(), 1);
  setenv("SIMCUDA_RACES", races.c_str(), 1);
  for (const char byte :
       pack(run_script(make_script(seed, attempt, cuts), fatal.result != 0 ? Faults::at : Faults::program, fatal)))
    std::printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  std::printf("\n");
  return 0;
}

int run_line(const std::string& line) {
  std::istringstream words(line);
  if (line.rfind("disorder ", 0) == 0) {
    std::string word;
    words >> word;
    return run_in_order(std::move(words));
  }
  std::uint64_t seed = 0;
  Limits limits;
  if (!parse(std::move(words), seed, limits)) return 2;
  std::printf("%016" PRIx64 "\n", run_program(make_program(seed, limits)));
  return 0;
}

int serve() {
  for (std::string line; std::getline(std::cin, line);) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatienceSeconds);
      std::exit(run_line(line));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::printf("failed\n");
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool describe = false;
  std::string line;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--serve") == 0) return serve();
    if (std::strcmp(argv[i], "--describe") == 0) {
      describe = true;
    } else {
      line.append(line.empty() ? "" : " ").append(argv[i]);
    }
  }
  std::uint64_t seed = 0;
  Limits limits;
  if (!parse(std::istringstream(line), seed, limits)) {
    std::fprintf(stderr, "usage: random_steps [--describe] SEED [OPS [REPEATS [WITHOUT...]]] | random_steps --serve\n");
    return 2;
  }
  const Program program = make_program(seed, limits);
  if (describe) {
    std::fputs(nimble::oracle::describe(program).c_str(), stdout);
  } else {
    std::printf("%016" PRIx64 "\n", run_program(program));
  }
  return 0;
}
