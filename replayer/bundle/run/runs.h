// The interface of ways to run the step, and the way without a schedule: call by call, as the program did. Each run is
// timed.
//
// One thread, with the driver's context current. Errors: DriverError.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "replayer/bundle/process/live_driver.h"
#include "replayer/bundle/run/live_ops.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

// How long one run took.
struct RunTime {
  double gpu_us = 0;   // between two events, before the step's first op and after its last
  double host_us = 0;  // from before the first call until all is done
};

class Run {
 public:
  virtual ~Run() = default;
  // Runs the step once, and waits for it. Memory is as it was at the step's start.
  virtual RunTime run() = 0;
  // Whether a word that a run leaves in memory corresponds to this recorded one, though it differs: an address of
  // memory that this way has moved.
  virtual bool same(std::uint64_t recorded, std::uint64_t found) const;
  // Whether the word is the address of such memory as it was recorded.
  virtual bool elsewhere(std::uint64_t word) const;
  // Whether it rewrites such addresses in the host source of the op, a copy.
  virtual bool rewrites(std::uint32_t op) const;
};

// Two events around a step.
class Stopwatch {
 public:
  explicit Stopwatch(LiveDriver& driver);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  CUevent begin() const { return begin_; }
  CUevent end() const { return end_; }
  // Times `step`, which records both.
  RunTime time(const std::function<void()>& step);

 private:
  LiveDriver& driver_;
  CUevent begin_ = nullptr, end_ = nullptr;
};

// Memory that an op releases and an allocation on another stream takes over, by op numbers.
struct Handover {
  std::uint32_t from = 0, to = 0;
};
// Those of a step, by the ops that take over. The driver's allocator ensures that the first stream is done with the
// memory. `objects` describe memory that is older than the step.
std::vector<Handover> handovers_of(const std::vector<TraceCall>& ops, const std::vector<BundleObject>& objects);

// In the program's order, on corresponding streams, with its events and its host's waits. Memory that the program's
// allocator moved from one stream to another is handed over in the same way.
class InOrder final : public Run {
 public:
  InOrder(LiveDriver& driver, const Bundle& bundle, const RecordedStep& step, LiveOps& ops);
  ~InOrder() override;
  RunTime run() override;

 private:
  void submit_all();
  void host_call(const TraceCall& call);

  LiveDriver& driver_;
  const RecordedStep& step_;
  LiveOps& ops_;
  Stopwatch watch_;
  std::vector<Handover> handovers_;
  std::vector<CUevent> released_;  // by op: for sources of handovers, else null
  std::vector<CUevent> joins_;     // per stream except the first
};

}  // namespace nimble::bundle
