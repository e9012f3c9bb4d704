// NIMBLE_MODE=regions: the program's calls go to the driver as they are, and regions that the program marks by the C
// API are recorded, compiled, and launched as graphs (replayer/submit/region_graph.h).
//
// A CallSink: called from any thread. A lock guards the history of calls that matter to later regions
// (replayer/bind/call_history.h) and the list of regions; all other calls pass without a lock, and so does launching. A
// region belongs to the program, from begin() to destroy(): while one thread ends, compiles or destroys it, no other
// may use it. The sink is kept for the life of the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/call.h"
#include "nimble/internal/evidence.h"
#include "replayer/bind/call_history.h"
#include "replayer/driver/driver_api.h"
#include "replayer/onlookers/onlookers.h"
#include "shim/modes/program_region.h"

namespace nimble::shim {

struct RegionOptions {
  std::uint64_t limit_bytes = 0;                // of the trace of one region
  std::vector<std::string> rules;               // files
  Evidence trust = Evidence::exact;             // the weakest evidence that is believed
  std::function<void(const std::string&)> log;  // lines for the user
};

class RegionSink final : public CallSink {
 public:
  RegionSink(RegionOptions options, CallContext& context);

  Answer before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  // Regions give their memory back and are stale then: the program has its own code for what they do.
  bool give_back(const Call& call) noexcept override;
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  void finish() noexcept override {}
  bool forked() noexcept override;

  // Starts recording the calling thread's calls. Null if it is recording a region already, or has no context.
  ProgramRegion* begin();
  // Ends the calling thread's region. False if that is not this one.
  bool end(ProgramRegion& region);
  // False if it is refused or stale: why() says more.
  bool compile(ProgramRegion& region);
  // The graph's launch; nothing where the region cannot be launched: its state says why.
  Answer launch(ProgramRegion& region, CUstream stream);
  // False where another thread is recording it.
  bool destroy(ProgramRegion* region);

 private:
  void note(const Call& call, CUresult result);
  void look(Call& call);
  void keep(const Onlookers::Works& met);
  Answer launch_by_lock(ProgramRegion& region, const StreamRef& stream);
  CUresult launch_in_an_order(ProgramRegion& region, const StreamRef& stream, std::optional<Onlookers::Launch>& unseen);
  bool give_graphs_back(const Call& call);
  std::vector<ProgramRegion*> enough_for(const Call& call, CUcontext context) const;
  void goes(const Call& call);
  void mark(const StreamRef* stream);
  void go_stale(const char* why, const std::function<bool(const ProgramRegion&)>& which);

  const RegionOptions options_;
  analyzer::KeptRules rules_;
  std::once_flag beliefs_told_;
  CallContext& context_;
  Onlookers onlookers_;
  std::mutex mutex_;  // guards all below
  CallHistory history_;
  std::vector<ProgramRegion*> regions_;
  DriverApi driver_;  // constant once loaded
  std::atomic<bool> loaded_{false};
  std::atomic<bool> captures_{false};  // some stream may capture
  std::atomic<std::uint64_t> steps_marked_{0};
  std::atomic<int> recorded_{0};            // regions that some thread is recording
  std::atomic<std::uint64_t> launches_{0};  // but for those that regions which still exist count themselves
};

}  // namespace nimble::shim
