// Runs a random program in disorder on the CUDA driver, which is the simulated one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/oracle/disorder/disorder.h"

namespace nimble::oracle {

// Where a program was told of an error: in each step 0 stands for what comes before its ops, then come these.
struct Told {
  std::uint32_t step = 0, at = 0;
  std::int32_t result = 0;
  friend auto operator<=>(const Told&, const Told&) = default;
};

struct ScriptResult {
  std::uint64_t digest = 0;            // of all that was computed
  std::vector<std::uint64_t> digests;  // by buffer
  std::vector<Told> errors;            // as they came
  std::uint64_t failures = 0;          // calls and ops that the driver refused on demand
  std::uint64_t races = 0, illegal = 0;
};

// After a step with a planned failure everything is waited for, right after its last op.
std::uint32_t place_of_wait(const Script& script);

enum class Faults : std::uint8_t {
  all,
  program,  // only of what the program calls itself, not those of replay's own calls
  at,       // none; but the context fails right before this call
};

ScriptResult run_script(const Script& script, Faults faults, const Told& at = {});

// As bytes, for a pipe; of what is not whole, std::runtime_error.
std::string pack(const ScriptResult& result);
ScriptResult unpack_result(const std::string& bytes);

}  // namespace nimble::oracle
