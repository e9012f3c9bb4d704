// Where pointers may go in a kernel: which of its parameters' own values it may store, and between which memories it
// may move what it loads. The weaker the evidence, the more may happen.
//
// The proof from a kernel's code tells it; else a rule, which speaks for the whole kernel; else its code for another
// architecture, except for the words that this says nothing about, and only if replay compares what ran; else, and for
// these words, the types in its name: an address may be stored wherever pointers, classes or 8-byte integers may be,
// and copied as bytes wherever integers may be. Floating-point numbers are assumed to be neither. A kernel with none of
// these may do anything; but if it was watched in launches like the one at hand, and stored none of its pointers, it
// stores none. Watching cannot tell what it moves: that depends on what is there.
//
// Refers to the trace, the rules and what was seen, which must outlive it; caches one answer per function, and one per
// launch if it has to be examined. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analyzer/pointers/observations.h"
#include "analyzer/rules/rules.h"
#include "nimble/internal/trace.h"

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

  // For the word at byte `at` of the launch's packed parameters; from kAtGlobals on, for a variable. `call` is its
  // index in the trace.
  PointerFlow of(std::uint32_t call, std::uint32_t at);

  // What it may do with any of its words, whatever they lead to: `is_stored` if it stores one of them, and so on.
  PointerFlow any(std::uint32_t call);

  // Whether the answers for the launch rely on launches like it that were watched: then they hold for its shape.
  bool by_sight(std::uint32_t call);

  // Whether it may take addresses from memory that no parameter leads to, or leave some there: then every pointer that
  // it is given may end up anywhere that such kernels write.
  bool leaks(std::uint32_t function);

 private:
  struct Part {
    std::uint32_t begin, end;  // bytes of the parameters
    PointerFlow flow;
  };
  struct Known {
    bool asked = false, leaks = false;
    bool may_be_watched = false;  // what was seen counts as well
    PointerFlow otherwise;
    std::vector<Part> parts;
  };

  // For the parts that count, together with what was seen.
  template <class Counts>
  PointerFlow together(std::uint32_t call, Counts counts);
  const Known& known(std::uint32_t function);
  void judge(std::uint32_t index, Known& result) const;
  void judge_proof(const TraceFunction& function, Known& result) const;
  bool judge_types(const TraceFunction& function, Known& result) const;

  const Trace& trace_;
  const Rules& rules_;
  const Observations* seen_;
  std::vector<Known> known_;
  std::unordered_map<std::uint32_t, bool> stores_none_;  // by launch
};

}  // namespace nimble::analyzer
