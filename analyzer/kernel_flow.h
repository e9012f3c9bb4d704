// Where pointers may go in a kernel: which of its parameters' own values it may store, and between which memories it
// may move what it loads. Weaker evidence says more may happen.
//
// What a kernel's code proves tells it; else a rule, which speaks for the whole kernel; else the types in its name: an
// address is stored where pointers, classes or 8-byte integers may lie, and copied as bytes where integers may lie. Of
// numbers with a fraction neither is taken to be done. A kernel that was watched and never wrote what looks like an
// address does none of that. Of a kernel with none of these, anything may happen.
//
// Refers to the trace and the rules, which must outlive it; caches one answer per function. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/observations.h"
#include "analyzer/rules/rules.h"
#include "nimble/trace.h"

namespace nimble::analyzer {

// What a kernel may do with a pointer among its parameters.
struct PointerFlow {
  bool is_stored = false;  // it stores the pointer itself
  bool keeps = false;      // it stores pointers of its parameters where this one points
  bool from = false;       // it moves addresses that it loads from there
  bool to = false;         // it moves addresses that it has loaded to there
  bool operator==(const PointerFlow&) const = default;
};

class KernelFlows {
 public:
  // `seen` may be null: then nothing that was seen is believed.
  KernelFlows(const Trace& trace, const Rules& rules, const Observations* seen)
      : trace_(trace), rules_(rules), seen_(seen), known_(trace.functions.size()) {}

  // Of the word at byte `at` of the function's packed parameters; from kAtGlobals on, of a variable.
  PointerFlow of(std::uint32_t function, std::uint32_t at);

  // Whether it may take addresses from memory that no parameter leads to, or leave some there: then every pointer that
  // it is given may come to be anywhere where such kernels write.
  bool leaks(std::uint32_t function);

 private:
  struct Part {
    std::uint32_t begin, end;  // bytes of the parameters
    PointerFlow flow;
  };
  struct Known {
    bool asked = false, leaks = false;
    PointerFlow otherwise;
    std::vector<Part> parts;
  };

  const Known& known(std::uint32_t function);
  void judge(std::uint32_t index, Known& result) const;
  bool judge_types(const TraceFunction& function, Known& result) const;

  const Trace& trace_;
  const Rules& rules_;
  const Observations* seen_;
  std::vector<Known> known_;
};

}  // namespace nimble::analyzer
