// A random program that does not keep to its step: what it does in each of many steps, and which of its calls the
// driver refuses.
//
// Made from a seed alone. The first steps are as the program was drawn. Some programs have further kinds of step, made
// from the first by changes that are the same each time, and issue them in any order. Of the steps some have changes:
// ops that are left out, added, exchanged, or other than they were, memory that is kept, moved or exchanged, calls
// through which the host observes. Whatever the changes are, each step is valid (program.h): what cannot be any more is
// left out, and what conflicts is ordered. Plain data; no errors.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "tests/oracle/program/program.h"

namespace nimble::oracle {

// clang-format off
#define NIMBLE_ORACLE_CHANGES(X)                                                                              \
  X(leave_out) X(add) X(swap) X(pointer) X(size) X(shape) X(value) X(kernel) X(alloc_size) X(keep) X(exchange)  \
  X(replace) X(renew) X(new_object) X(elsewhere) X(cut) X(stream) X(wait) X(wait_stream) X(wait_event) X(query) \
  X(poll) X(read_back) X(look) X(host_function) X(captured) X(reloaded) X(dawdle) X(renew_event)                \
  X(free_blocking)
// clang-format on

enum class ChangeKind : std::uint8_t {
#define X(id) id,
  NIMBLE_ORACLE_CHANGES(X)
#undef X
      count
};
const char* name_of(ChangeKind kind);

// Who issues the ops of a step.
enum class Threads : std::uint8_t {
  one,
  in_turn,  // a thread for each stream, or step by step another; one op after the other, as they stand
  freely,   // a thread for each stream: only a wait for an event is ordered after its record, and host calls after all
            // earlier ones
};

enum class FaultKind : std::uint8_t {
  none,
  refused,  // the op, wherever it is submitted: with an error that a context survives
  fatal,    // the same, with one that it does not survive
  runs,     // the op is a fault when it runs
  memory,   // the op is an allocation for which there is no memory, at first
  own,      // the `nth` call of `symbol` from the beginning of the step: replay makes such calls, or the program twice
};
const char* name_of(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::none;
  std::uint32_t step = 0, op = 0;
  int result = 0;  // CUresult
  std::string symbol;
  std::uint32_t nth = 1;
};

struct Script {
  Program program;  // with what the changes need
  std::vector<std::vector<Op>> steps;
  std::vector<bool> disturbed;  // by step
  std::uint32_t kinds = 1;
  std::vector<ChangeKind> changes;
  Threads threads = Threads::one;
  Fault fault;
};

// What to leave out of it, to make it smaller.
struct Cuts {
  Limits limits;                       // of the program
  std::uint32_t steps = 0xffffffff;    // no more than so many
  std::vector<std::uint32_t> without;  // these changes
  bool no_fault = false, one_thread = false;
};

// The program whose step `seed` disturbs: `attempt` counts redraws for programs without a schedule.
Program base_of(std::uint64_t seed, std::uint32_t attempt, const Limits& limits);
Script make_script(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts);
// The same program as it is recorded: undisturbed, each kind of step a few times.
Script make_recording(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts);

// The same in words, by which random_steps is asked to run it.
std::string words_of(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts);
bool read(std::istream& words, std::uint64_t& seed, std::uint32_t& attempt, Cuts& cuts);

// One line per change and op of the steps that are disturbed, for people.
std::string describe(const Script& script);

}  // namespace nimble::oracle
