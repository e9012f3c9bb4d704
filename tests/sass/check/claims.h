// Holds what a kernel does when it is run against what was proven of it.
//
// Each pointer among the parameters points into an object of its own, far from all others; so every address shows from
// which parameter it came. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analyzer/kernel_code/ptx_flow/flow.h"
#include "tests/sass/emulator/machine.h"

namespace nimble::code::oracle {

// What is known of a kernel's parameters.
struct Layout {
  std::string name;
  std::uint32_t bytes = 0;
  std::vector<std::uint32_t> pointers;  // words; where this is unknown, any word may be one
  bool known = false;
  bool extreme = false;  // its numbers are at the ends of what they can be, too
  bool choices = false;  // its numbers choose: they are small, and pointers may be null
  // Of its words: those that point to arrays of pointers, and those that hold half of an address.
  std::vector<std::uint32_t> arrays, halves;
};

struct Claims {
  explicit Claims(const PtxProof& proof);

  std::set<std::pair<std::uint32_t, bool>> words;  // word, whether it is written
  std::set<std::pair<std::string, bool>> variables;
  std::set<std::uint32_t> stored;
  AddressExtents extents;
};

struct Tally {
  std::uint64_t runs = 0, ended = 0, accesses = 0, judged = 0, astray = 0, forced = 0, variables = 0, stored = 0,
                extents = 0,  // accesses that were held against how far they may get
      left_alone = 0,         // words that hold a pointer, and that a launch is said not to use as an address
      excluded = 0,           // runs of kernels with doubts, all of which the run's numbers exclude
      doubtful = 0;           // and those of which nothing is claimed
  std::map<std::string, std::uint64_t> given_up;
  std::set<std::pair<std::uint32_t, bool>> seen;  // of one kernel
};

// How a run is judged. A changed program may put halves of two pointers together, which no compiler does; so only
// what is near an object belongs to it.
struct Measure {
  std::uint64_t most_steps, reach;
  bool small;  // numbers are small, among parameters and in memory
};

// Runs it once, as `seed` says; what contradicts the claims, or nothing.
std::string run_once(const emulator::Program& program, const Layout& layout, const Claims& claims, std::uint64_t seed,
                     const Measure& measure, Tally& tally);

}  // namespace nimble::code::oracle
