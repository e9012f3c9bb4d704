// Ways to run the step: call by call as the program did, or under a schedule. Each run is timed.
//
// One thread, with the driver's context current. Errors: DriverError; InputError and Refused where a schedule does not
// fit the step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nimble/schedule.h"
#include "replayer/bundle/live_driver.h"
#include "replayer/bundle/live_ops.h"
#include "replayer/bundle/placement.h"
#include "replayer/bundle/recorded_step.h"
#include "replayer/live_step.h"
#include "replayer/segment_graph.h"

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
  CUevent event = nullptr;
};
// Those of a step. An allocator of the driver's sees to it that the first stream is done with the memory.
std::vector<Handover> handovers_of(const std::vector<TraceCall>& ops);

// In the program's order, on streams as the program's, with its events and with the waits of its host. Memory that the
// program's allocator gave from one stream to another is handed over as the allocator did it.
class InOrder final : public Run {
 public:
  InOrder(LiveDriver& driver, const RecordedStep& step, LiveOps& ops);
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
  std::vector<CUevent> joins_;  // per stream but the first
};

// As a schedule says: a graph for each segment, on the step's first stream, and what no graph holds between them.
class BySchedule final : public Run {
 public:
  // `source` names the schedule in errors.
  BySchedule(LiveDriver& driver, const Bundle& bundle, const RecordedStep& step, const Placement& placement,
             LiveOps& ops, Schedule schedule, const std::string& source);
  ~BySchedule() override;
  RunTime run() override;

  std::uint32_t lanes() const;
  std::size_t graphs() const { return graphs_.size(); }

 private:
  void match(const Bundle& bundle, const Placement& placement, const std::string& source);
  void build();
  void move_direct_ops(const Placement& placement);
  void submit_all();

  LiveDriver& driver_;
  const RecordedStep& step_;
  LiveOps& ops_;
  const Schedule schedule_;
  MemoryMap memory_;
  ObjectMap objects_;
  LiveStep live_;
  Stopwatch watch_;
  CUstream stream_ = nullptr;
  CUdeviceptr arena_ = 0;
  std::uint32_t next_op_ = 0;  // of the run that goes on
  std::vector<SegmentGraph> graphs_;
  std::vector<std::unique_ptr<LiveOps::Op>> direct_;  // by op: what no graph holds, with the addresses of the plan
};

}  // namespace nimble::bundle
