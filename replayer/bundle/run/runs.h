// A way to run the step, and the one that is there without a schedule: call by call, as the program did. Each run is
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
  double gpu_us = 0;   // between two events, before the step's first op and behind its last
  double host_us = 0;  // from before the first call until all is done
};

class Run {
 public:
  virtual ~Run() = default;
  // Runs the step once, and waits for it. Memory is as it was at the step's start.
  virtual RunTime run() = 0;
  // Whether a word that a run leaves in memory stands for this recorded one, though it differs: the address of memory
  // that this way puts elsewhere.
  virtual bool same(std::uint64_t recorded, std::uint64_t found) const;
  // Whether the word is the address of such memory as it was recorded.
  virtual bool elsewhere(std::uint64_t word) const;
  // Whether it sees to such addresses in what the op, a copy, takes from the host.
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

// A release of memory that an allocation on another stream takes over: by their ops.
struct Handover {
  std::uint32_t from = 0, to = 0;
};
// Those of a step, by the ops that take over. An allocator of the driver's sees to it that the first stream is done
// with the memory. `objects` tell of memory that is older than the step.
std::vector<Handover> handovers_of(const std::vector<TraceCall>& ops, const std::vector<BundleObject>& objects);

// In the program's order, on streams as the program's, with its events and with the waits of its host. Memory that the
// program's allocator gave from one stream to another is handed over as the allocator did it.
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
  std::vector<CUevent> released_;  // by op: of one that a handover is from, else null
  std::vector<CUevent> joins_;     // per stream but the first
};

}  // namespace nimble::bundle
