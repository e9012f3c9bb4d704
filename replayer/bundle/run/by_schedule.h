// The step by a schedule: a graph for each segment, on the step's first stream, and direct ops in between.
//
// The step's own allocations lie where the schedule's memory plan puts them, as in the program under replay: the
// program would get these addresses, and would pass them to kernels and put them into tables. So we rewrite parameters
// that hold them, including an object's end, and words in the host sources of copies, for the duration of a run. If
// such an address is elsewhere in memory it cannot be rewritten safely; code that compares memory can ask for it.
//
// One thread, with the driver's context current. Errors: DriverError; InputError if the schedule does not fit the step;
// Refused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nimble/internal/schedule.h"
#include "replayer/bundle/process/placement.h"
#include "replayer/bundle/run/live_ops.h"
#include "replayer/bundle/run/runs.h"
#include "replayer/match/op_match.h"
#include "replayer/submit/segment_graph.h"

namespace nimble::bundle {

// The schedules of those kinds of step that have as many ops as the bundle's, of the same kinds. Throws InputError if
// there is none. `source` names the schedule in errors.
std::vector<Schedule> schedules_for(const Schedule& schedule, const RecordedStep& step, const Bundle& bundle,
                                    const std::string& source);

class BySchedule final : public Run {
 public:
  // `source` names the schedule in errors.
  BySchedule(LiveDriver& driver, const Bundle& bundle, const RecordedStep& step, const Payloads& payloads,
             const Placement& placement, LiveOps& ops, Schedule schedule, const std::string& source);
  RunTime run() override;
  bool same(std::uint64_t recorded, std::uint64_t found) const override;
  bool elsewhere(std::uint64_t word) const override;
  bool rewrites(std::uint32_t op) const override { return schedule_.ops[op].payload.has_value(); }

  std::uint32_t lanes() const;
  std::size_t graphs() const { return graphs_.size(); }

 private:
  // Memory for the plan.
  struct Arena {
    explicit Arena(LiveDriver& driver_) : driver(driver_) {}
    ~Arena();
    LiveDriver& driver;
    CUdeviceptr address = 0;
  };
  // An allocation of the step itself.
  struct Local {
    std::uint64_t recorded = 0, address = 0;  // as recorded; the same here
    std::uint64_t size = 0;
    std::uint64_t planned = 0;
    std::uint32_t object = kNone;
  };
  // A word of host memory that a run changes.
  struct Rewritten {
    std::uint64_t recorded = 0, planned = 0;
  };

  void make_arena();
  void match(const Bundle& bundle, const Payloads& payloads, const Placement& placement, const std::string& source);
  void pass_addresses(std::uint32_t index);
  void pass_source(const BundlePayload& source);
  std::uint64_t planned(std::uint64_t word, bool ends_alone) const;
  void build();
  void submit_all();

  LiveDriver& driver_;
  const RecordedStep& step_;
  LiveOps& ops_;
  const Schedule schedule_;
  MemoryMap memory_;
  ObjectMap objects_;
  OpMatch live_;
  Stopwatch watch_;
  CUstream stream_ = nullptr;
  Arena arena_;
  std::vector<Local> locals_, alive_;
  std::map<std::uint64_t, Rewritten> rewritten_;  // by address
  std::uint32_t next_op_ = 0;                     // of the present run
  std::vector<SegmentGraph> graphs_;
  std::vector<std::unique_ptr<LiveOps::Op>> direct_;  // by op: direct ops, with the plan's addresses
};

}  // namespace nimble::bundle
