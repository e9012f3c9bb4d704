// What the threads of a program did on the host while the GPU was idle or narrow.
//
// Refers to the trace, which must outlive it. Immutable once built; any thread. Times in microseconds, on the trace's
// clock. No errors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analyzer/ledger/losses.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class HostActivity {
 public:
  HostActivity(const Trace& trace, double from_us, double until_us);

  // Splits `loss`, a time in which the host has yet to submit the call `target`, by what the thread that does so was
  // at.
  void split(const Loss& loss, std::uint32_t target, std::vector<Loss>& out) const;

 private:
  // The calls of a thread, in the order in which they began; and until when those so far took, since calls may nest.
  struct Thread {
    std::vector<std::uint32_t> calls;
    std::vector<double> until_us;
  };

  const Trace& trace_;
  std::map<std::uint32_t, Thread> threads_;
};

}  // namespace nimble::analyzer
