// What one launch is said to touch: what Nimble would order it by, for a check of that against the GPU.
//
// One thread at a time. Throws nothing for what is in the trace; may throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/evidence.h"

namespace nimble::shim {

struct LaunchAccesses {
  struct Memory {  // a whole allocation
    std::uint64_t address = 0, size = 0;
    bool writes = false;  // else it is only read
  };
  std::vector<Memory> memory;  // each allocation once, by address
  Evidence evidence = Evidence::assumed;
  std::string why_not;  // why nothing is known, and it would be ordered with everything; else empty
};

// Of the trace's last call, a launch. What came before it is the memory that there is; all of that counts, not only
// what the launch names.
LaunchAccesses launch_accesses(const TraceStore::Text& text, analyzer::KeptRules& rules, Evidence trust);

}  // namespace nimble::shim
