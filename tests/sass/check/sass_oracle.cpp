// Compares what is proven of kernels' machine code with their PTX, and with what they do when they are run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/sass_flow/flow.h"
#include "tests/sass/check/assemble.h"
#include "tests/sass/check/claims.h"
#include "tests/sass/check/mutate.h"

namespace nimble::code::oracle {
namespace {

constexpr char kUsage[] =
    "usage: sass_oracle --ptx FILE --layout FILE [--runs N] [--mutations N] [--seed N] [--kernel NAME] [--keep DIR] "
    "[--verbose]\n"
    "                   CUBIN...\n"
    "Reads kernels' PTX, their machine code, and the table of their parameters that make_kernels.py writes. Prints a\n"
    "line for each kernel of which proofs differ (--verbose: for each), one for each contradiction, and what was "
    "counted\n"
    "as JSON. Ends with 1 where there is a contradiction.\n"
    "  --runs N       runs of each kernel, with other parameters and contents of memory each\n"
    "  --mutations N  of each kernel so many changed ones: with other registers in an instruction, proven anew and "
    "run\n";

struct Options {
  std::string ptx, layout, kernel, keep;
  std::vector<std::string> cubins;
  std::uint64_t runs = 10, mutations = 0, seed = 1;
  bool verbose = false;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "sass_oracle: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<Options> read_options(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string each = arguments[i];
    if (each == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (!each.starts_with("--")) {
      options.cubins.push_back(each);
      continue;
    }
    if (++i == count) return std::nullopt;
    const std::string value = arguments[i];
    if (each == "--ptx")
      options.ptx = value;
    else if (each == "--layout")
      options.layout = value;
    else if (each == "--kernel")
      options.kernel = value;
    else if (each == "--keep")
      options.keep = value;
    else if (each == "--runs")
      options.runs = std::stoull(value);
    else if (each == "--mutations")
      options.mutations = std::stoull(value);
    else if (each == "--seed")
      options.seed = std::stoull(value);
    else
      return std::nullopt;
  }
  if (options.cubins.empty()) return std::nullopt;
  return options;
}

// Numbers with commas between them; "-": none.
std::vector<std::uint32_t> numbers_in(const std::string& text) {
  std::vector<std::uint32_t> numbers;
  std::istringstream list(text == "-" ? std::string() : text);
  std::string number;
  while (std::getline(list, number, ',')) numbers.push_back(static_cast<std::uint32_t>(std::stoul(number)));
  return numbers;
}

// A line: name, bytes, words that are pointers, how it takes indices: `bounded`, `free`, `extreme`; or `choices`, words
// that are arrays of pointers, words that are halves of addresses.
std::map<std::string, Layout> read_layouts(const std::string& path) {
  std::map<std::string, Layout> layouts;
  if (path.empty()) return layouts;
  std::istringstream lines(read_file(path));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    Layout layout;
    std::string words, indices, arrays, halves;
    fields >> layout.name >> layout.bytes >> words >> indices >> arrays >> halves;
    layout.extreme = indices == "extreme";
    layout.choices = indices == "choices";
    layout.pointers = numbers_in(words);
    layout.arrays = numbers_in(arrays);
    layout.halves = numbers_in(halves);
    layout.known = true;
    layouts[layout.name] = layout;
  }
  return layouts;
}

std::string spoken(const std::set<std::pair<std::uint32_t, bool>>& words) {
  std::string text;
  for (const auto& [word, writes] : words)
    text += (text.empty() ? "" : " ") + std::to_string(word) + (writes ? "w" : "r");
  return text;
}

std::string spoken(const std::set<std::uint32_t>& words) {
  std::string text;
  for (const std::uint32_t word : words) text += (text.empty() ? "" : " ") + std::to_string(word);
  return text;
}

struct Counts {
  std::uint64_t kernels = 0, both = 0, only_ptx = 0, only_machine = 0, neither = 0, same = 0, narrower = 0, wider = 0,
                stored_wider = 0, stored_narrower = 0, unseen = 0, claimed = 0, mutants = 0, mutants_understood = 0,
                wrong = 0;
  std::map<std::string, std::uint64_t> why;
};

class Oracle {
 public:
  explicit Oracle(const Options& options) : options_(options), layouts_(read_layouts(options.layout)) {}

  int run() {
    const std::string ptx_text = options_.ptx.empty() ? std::string() : read_file(options_.ptx);
    const PtxModule module = read_ptx(ptx_text);
    for (const std::string& path : options_.cubins) {
      const std::string bytes = read_file(path);
      const Elf elf(bytes);
      if (elf.error()) {
        std::fprintf(stderr, "sass_oracle: %s: %s\n", path.c_str(), elf.error());
        return 2;
      }
      for (const ElfSymbol& symbol : elf.symbols())
        if (symbol.kernel && (options_.kernel.empty() || symbol.name == options_.kernel))
          look(elf, bytes, std::string(symbol.name), module);
    }
    report();
    return counts_.wrong == 0 ? 0 : 1;
  }

 private:
  void look(const Elf& elf, const std::string& bytes, const std::string& name, const PtxModule& module) {
    ++counts_.kernels;
    const std::string place = name + " sm_" + std::to_string(elf.arch());
    const PtxProof machine = sass::prove_kernel(elf, name);
    const PtxFunction* const function = module.find(name);
    const PtxProof ptx = function ? prove_kernel(module, *function) : PtxProof{};
    if (machine.understood && ptx.understood) {
      ++counts_.both;
      compare(place, machine, ptx);
    } else {
      ++(machine.understood ? counts_.only_machine : ptx.understood ? counts_.only_ptx : counts_.neither);
      if (options_.verbose)
        std::printf("%s: %s; PTX: %s\n", place.c_str(), machine.understood ? "understood" : machine.why.c_str(),
                    ptx.understood ? spoken(Claims(ptx).words).c_str() : ptx.why.c_str());
      if (!machine.understood) ++counts_.why[machine.why.substr(0, machine.why.find(", at byte"))];
    }
    const auto known = layouts_.find(name);
    Layout layout = known == layouts_.end() ? Layout{} : known->second;
    for (auto* const words : {&layout.pointers, &layout.arrays, &layout.halves})
      if (layout.known && function) move_words(function->params, machine.params, *words);
    if (machine.understood) run_it(elf, place, name, layout, machine);
    if (options_.mutations > 0) mutate(bytes, place, name, layout);
  }

  // A parameter that is aligned to more than 16 bytes is so in the constant bank, and stands elsewhere in each file.
  static void move_words(const std::vector<PtxParam>& from, const std::vector<PtxParam>& to,
                         std::vector<std::uint32_t>& words) {
    for (std::uint32_t& word : words)
      for (std::size_t i = 0; i < from.size() && i < to.size(); ++i)
        if (word >= from[i].offset && word < from[i].offset + from[i].size) {
          word += to[i].offset - from[i].offset;
          break;
        }
  }

  void compare(const std::string& place, const PtxProof& machine, const PtxProof& ptx) {
    const Claims a(machine), b(ptx);
    const bool wider = !std::ranges::includes(b.words, a.words) || !std::ranges::includes(b.variables, a.variables);
    const bool narrower = !std::ranges::includes(a.words, b.words) || !std::ranges::includes(a.variables, b.variables);
    counts_.wider += wider;
    counts_.narrower += narrower;
    counts_.same += !wider && !narrower;
    counts_.stored_wider += !std::ranges::includes(b.stored, a.stored);
    counts_.stored_narrower += !std::ranges::includes(a.stored, b.stored);
    if (options_.verbose && a.stored != b.stored)
      std::printf("%s: may store %s | PTX %s\n", place.c_str(), spoken(a.stored).c_str(), spoken(b.stored).c_str());
    if (wider || narrower || options_.verbose)
      std::printf("%s:%s%s machine code %s | PTX %s\n", place.c_str(), wider ? " wider" : "",
                  narrower ? " narrower" : "", spoken(a.words).c_str(), spoken(b.words).c_str());
  }

  void run_it(const Elf& elf, const std::string& place, const std::string& name, const Layout& layout,
              const PtxProof& proof) {
    const emulator::Program program = emulator::load_program(elf, name);
    if (!program.error.empty()) {
      ++tally_.given_up[program.error];
      return;
    }
    const Claims claims(proof);
    tally_.seen.clear();
    for (std::uint64_t i = 0; i < options_.runs; ++i) {
      const std::uint64_t seed = options_.seed + i;
      const std::string wrong = run_once(program, layout, claims, seed, kMeasure, tally_);
      if (wrong.empty()) continue;
      ++counts_.wrong;
      std::printf("WRONG %s, seed %llu: it %s; proven: %s\n", place.c_str(), static_cast<unsigned long long>(seed),
                  wrong.c_str(), spoken(claims.words).c_str());
      break;
    }
    if (options_.verbose) std::printf("%s: seen %s\n", place.c_str(), spoken(tally_.seen).c_str());
    if (!proof.extents.doubts.empty()) return;  // how much of it happens is the launches' doing
    counts_.claimed += claims.words.size();
    for (const auto& each : claims.words) counts_.unseen += tally_.seen.contains(each) ? 0 : 1;
  }

  // Programs in the place of the kernel: it with some instructions changed, and others altogether.
  void mutate(const std::string& bytes, const std::string& place, const std::string& name, const Layout& layout) {
    // Others of each kernel, and of each architecture.
    std::uint64_t first = options_.seed;
    for (const char each : place) first = emulator::mixed(first + static_cast<unsigned char>(each));
    for (std::uint64_t i = 0; i < options_.mutations; ++i) {
      const std::uint64_t seed = first + i;
      run_instead(mutated(bytes, name, seed), place + ", mutation " + std::to_string(i), name, layout, seed);
      if (layout.known)
        run_instead(assembled(bytes, name, layout.pointers, seed), place + ", assembled " + std::to_string(i), name,
                    layout, seed);
    }
  }

  void run_instead(const std::string& bytes, const std::string& place, const std::string& name, const Layout& layout,
                   std::uint64_t seed) {
    if (bytes.empty()) return;
    const Elf elf(bytes);
    ++counts_.mutants;
    const PtxProof proof = sass::prove_kernel(elf, name);
    if (options_.verbose)
      std::printf("%s: %s\n", place.c_str(),
                  proof.understood ? spoken(Claims(proof).words).c_str() : proof.why.c_str());
    if (!proof.understood) return;
    ++counts_.mutants_understood;
    const emulator::Program program = emulator::load_program(elf, name);
    if (!program.error.empty()) return;
    const Claims claims(proof);
    for (std::uint64_t run = 0; run < kRunsOfMutants; ++run) {
      const std::string wrong = run_once(program, layout, claims, seed + run, kMeasureOfMutants, mutant_tally_);
      if (wrong.empty()) continue;
      ++counts_.wrong;
      std::printf("WRONG %s: it %s; proven: %s\n", place.c_str(), wrong.c_str(), spoken(claims.words).c_str());
      if (!options_.keep.empty()) std::ofstream(options_.keep + "/" + place + ".cubin", std::ios::binary) << bytes;
      return;
    }
  }

  // The last line: everything that was counted, as JSON.
  void report() const {
    std::string text = "{";
    const auto add = [&](const std::string& name, std::uint64_t value) {
      text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(value);
    };
    const Counts& counts = counts_;
    add("kernels", counts.kernels);
    add("both", counts.both);
    add("only_ptx", counts.only_ptx);
    add("only_machine_code", counts.only_machine);
    add("neither", counts.neither);
    add("same", counts.same);
    add("narrower", counts.narrower);
    add("wider", counts.wider);
    add("stored_narrower", counts.stored_narrower);
    add("stored_wider", counts.stored_wider);
    add("claims", counts.claimed);
    add("claims_unseen", counts.unseen);
    add("mutants", counts.mutants);
    add("mutants_understood", counts.mutants_understood);
    add("contradictions", counts.wrong);
    for (const auto& [prefix, tally] : {std::pair<std::string, const Tally&>{"", tally_}, {"mutant_", mutant_tally_}}) {
      add(prefix + "runs", tally.runs);
      add(prefix + "runs_to_end", tally.ended);
      add(prefix + "accesses", tally.accesses);
      add(prefix + "accesses_in_objects", tally.judged);
      add(prefix + "accesses_of_variables", tally.variables);
      add(prefix + "pointers_stored", tally.stored);
      add(prefix + "accesses_with_extents", tally.extents);
      add(prefix + "pointers_left_alone", tally.left_alone);
      add(prefix + "runs_that_exclude_doubts", tally.excluded);
      add(prefix + "runs_with_doubts", tally.doubtful);
      add(prefix + "waits_broken", tally.forced);
    }
    for (const auto& [why, count] : counts.why) add("not understood: " + why, count);
    for (const auto& [why, count] : tally_.given_up) add("given up: " + why, count);
    std::printf("%s}\n", text.c_str());
  }

  static constexpr std::uint64_t kRunsOfMutants = 3;
  static constexpr Measure kMeasure{20000, emulator::Objects::kReach, false},
      kMeasureOfMutants{3000, emulator::Objects::kNear, true};

  const Options& options_;
  const std::map<std::string, Layout> layouts_;
  Counts counts_;
  Tally tally_, mutant_tally_;
};

}  // namespace
}  // namespace nimble::code::oracle

int main(int count, char** arguments) {
  const auto options = nimble::code::oracle::read_options(count, arguments);
  if (!options) {
    std::fputs(nimble::code::oracle::kUsage, stderr);
    return 2;
  }
  return nimble::code::oracle::Oracle(*options).run();
}
