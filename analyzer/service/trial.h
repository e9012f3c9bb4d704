// Looks for a step in what has been recorded so far, and makes a schedule for it, as nimble-analyze would.
//
// Not synchronised, and slow: for a background thread. Neither find_step() nor schedule() throws for anything that is
// in the trace; both may throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "analyzer/input/trace_store.h"
#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/evidence.h"

namespace nimble::shim {

class Trial {
 public:
  using Source = std::function<std::size_t(char* buffer, std::size_t size)>;

  // `rules` must outlive it; null: only those that come with the analyzer. `trust`: the weakest evidence to believe.
  Trial(TraceStore::Text text, analyzer::KeptRules* rules, Evidence trust);
  // For looking alone: the same for a text that comes piece by piece, as for LineReader::Source.
  explicit Trial(Source text);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Whether the program repeats a step, or several kinds of steps, and was still doing so where the trace ends. Else
  // why_not() says more.
  bool find_step();
  // What replay needs to go on with that step. Empty if there is nothing to gain, or no schedule is possible:
  // why_not().
  std::string schedule();
  // For the log, if the order of that schedule rests on beliefs: which ones, and how to do without. Else empty.
  const std::string& beliefs() const { return beliefs_; }

  // Which share of the work since the first step was in steps: if it is small there may be other kinds of step. If the
  // program has marked its steps, there are no others.
  double explained() const;
  // How often the most frequent kind of step came.
  std::uint64_t times() const;
  // A description of the step that was found.
  std::string step_text() const;
  const std::string& why_not() const { return why_not_; }

 private:
  struct Found;

  Source text_;
  analyzer::KeptRules* const rules_;
  const Evidence trust_ = Evidence::exact;
  std::unique_ptr<Found> found_;
  std::string why_not_, beliefs_;
};

}  // namespace nimble::shim
