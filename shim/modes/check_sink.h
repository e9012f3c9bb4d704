// NIMBLE_MODE=check: tests what Nimble believes that kernels touch, by the GPU's own memory protection.
//
// The program's calls go to the driver as they are, but for its allocations: each becomes a mapping of its own
// (shim/check/mapped_memory.h). Before a launch that is checked, all earlier work is waited for; then memory that the
// launch is said not to touch is closed to the GPU, and what it is only said to read is read-only. The launch is waited
// for. If what was said is wrong, it faults, as by any illegal address: the context is lost, and the program is told so
// by the driver. Before anything else may touch memory, all of it is open again.
//
// What is said is what the regions of a program would be ordered by: the launch, and the memory that is alive, are
// recorded and analyzed as there (analyzer/service/launch_accesses.h).
//
// A CallSink: called from any thread. While a launch is checked, other threads' calls wait that put work on the GPU
// (shim/check/quiet.h). A lock guards the history of calls; it is not held while the driver is called. Checks one
// context: the one that allocates first. Whatever cannot be checked runs as it is, and counts.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/rules/kept_rules.h"
#include "nimble/internal/call.h"
#include "nimble/internal/evidence.h"
#include "replayer/bind/allocation_attributes.h"
#include "replayer/bind/call_history.h"
#include "replayer/driver/driver_api.h"
#include "shim/check/check_report.h"
#include "shim/check/launch_choice.h"
#include "shim/check/mapped_memory.h"
#include "shim/check/quiet.h"

namespace nimble::shim {

struct CheckOptions {
  std::uint64_t every = 0;           // of later launches of a kind, one in this many; 0: none
  std::uint64_t seed = 0;            // for the choice of them
  std::vector<std::string> rules;    // files
  Evidence trust = Evidence::exact;  // the weakest evidence that is believed
  std::string stats_path;            // where the report goes; empty: nowhere
  std::function<void(bool is_error, const std::string&)> log;
  std::function<void()> enter_helper_thread;  // run first on Nimble's threads
};

class CheckSink final : public CallSink {
 public:
  // `context` must outlive the sink.
  CheckSink(CheckOptions options, CallContext& context);

  Answer before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  bool give_back(const Call& call) noexcept override;
  void finish() noexcept override;
  bool forked() noexcept override;

 private:
  // --- calls, and memory
  Answer reply(Call& call);
  Answer pass(Call& call);
  Answer allocate(Call& call);
  void make_room();
  Answer release(const Call& call);
  Answer answer(Call& call);
  // Whether this is the one context whose memory is ours; the first one to ask becomes it.
  bool is_home(CUcontext context);
  bool is_capturing(const StreamRef& stream) const;

  // --- launches
  void enter(bool touches);
  bool try_check(Call& call) noexcept;
  bool begin_check(Call& call);
  LaunchAccesses ask(Call& call);
  std::uint64_t kind_of(const FunctionInfo& function, const std::vector<std::uint8_t>& params) const;
  void end_check(const Call& call, CUresult result);
  bool is_through(std::chrono::milliseconds patience) const;
  void stop(const char* why) noexcept;
  void failed(const Call& call, const std::exception& error) noexcept;

  const CheckOptions options_;
  CallContext& context_;
  analyzer::KeptRules rules_;
  LaunchChoice choice_;
  MappedMemory memory_;
  AllocationAttributes answers_;
  Quiet quiet_;
  AccessFault checked_;  // the launch that is checked, and what to report if it faults: of the thread that is alone
  CheckReport report_;
  std::atomic<CUcontext> home_{nullptr};
  std::atomic<bool> stopped_{false};  // no launch is checked any more
  std::atomic<int> late_{0};          // how often waiting took too long
  std::atomic<bool> finished_{false};
  mutable std::mutex mutex_;  // guards the history
  CallHistory history_;
  std::once_flag loaded_;
  DriverApi driver_;  // constant once loaded
  bool has_driver_ = false;
};

}  // namespace nimble::shim
