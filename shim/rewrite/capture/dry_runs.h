// Work that bypasses captures: those under way, and rehearsals, in which a program thread's calls are followed as if
// its stream captured.
//
// A rehearsal may have parts: each begins as if the capture had ended there, and another had begun on the same stream.
//
// Owns the state of both (uncaptured_work.h, capture_dry_run.h), and each thread's rehearsal, under its own lock, which
// is taken before theirs and never held while the driver is called. Any thread; rehearsals are the calling thread's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "nimble/internal/call.h"
#include "shim/rewrite/capture/capture_dry_run.h"
#include "shim/rewrite/capture/captures_under_way.h"
#include "shim/rewrite/capture/uncaptured_work.h"

namespace nimble::shim {

class DryRuns {
 public:
  // `captures` must outlive it.
  explicit DryRuns(const CapturesUnderWay& captures) : captures_(captures) {}

  // --- Rehearsals.

  // Begins one. False if the thread rehearses already, or on a legacy default stream, which cannot capture.
  bool begin(CUstream stream);
  // Begins a part. False if the thread does not rehearse.
  bool begin_part();
  // Ends it. Nothing if the thread does not rehearse.
  struct Rehearsed {
    std::uint64_t strays = 0;  // pieces of work that would have bypassed the capture
    std::uint64_t behind = 0;  // of those after begin_part(): that would have bypassed the capture that began there
  };
  std::optional<Rehearsed> end();

  // --- Captures.

  // The calling thread has begun one; one has ended in this graph, or in none.
  void began(std::uint64_t capture);
  void ended(std::uint64_t capture, CUgraph graph) { strays_.ended(capture, graph); }
  void destroyed(CUgraph graph) { strays_.destroyed(graph); }
  // How many pieces of work the threads of the graph's capture have submitted outside any capture meanwhile.
  std::uint64_t strays_of(CUgraph graph) { return strays_.of(graph); }

  // --- The program's calls.

  // One is about to reach the driver, and may end an event or a stream.
  void ending(const Call& call) {
    if (rehearsals_.any()) rehearsals_.ending(call);
  }
  // The driver has accepted one.
  void submitted(const Call& call);

 private:
  // The number of its dry run, its stream, the number of the last part if there is one, and what bypassed earlier
  // parts.
  struct Rehearsing {
    std::uint64_t capture = 0, stream = 0;
    std::optional<std::uint64_t> part;
    std::uint64_t behind = 0;
  };

  std::uint64_t begin_capture(std::uint64_t stream, std::uint32_t thread);
  std::uint64_t end_capture(std::uint64_t number);

  const CapturesUnderWay& captures_;
  StrayWork strays_;
  Rehearsals rehearsals_;
  std::mutex mutex_;
  std::map<std::uint32_t, Rehearsing> threads_;  // that rehearse
};

}  // namespace nimble::shim
