// What the driver calls of a process mean to a replay, or a recording, that begins later: which memory is allocated,
// what was created by which memory may be reached unnamed, whether a stream captures, and what was asked of a pool.
//
// What may have gone with a context stays: whoever gets the same address later takes its place. Follows the few calls
// that matter; all others may be left out. Not synchronised, but for prepare().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "nimble/internal/call.h"
#include "replayer/bind/memory_map.h"
#include "replayer/driver/captures.h"

namespace nimble {

class CallHistory {
 public:
  explicit CallHistory(CallContext& context) : context_(context) {}

  // Looks for the driver function that is needed. Any thread, without locks, before either of these:
  void prepare();

  // Whether the call is one of those that matter.
  static bool matters(const Call& call);

  // Releases of memory and beginnings of captures count from before the driver sees them, all else from its answer.
  void before(const Call& call);
  void after(const Call& call, CUresult result);

  bool capturing() const { return captures_.any(); }

  // Follows calls again after a while, as which these allocations are alive, and nothing captures.
  void restart(const std::vector<Allocation>& alive);

  // Calls that succeeded and have the same effect as all that have been: what is hidden first, then allocations by
  // address. Their notes are constants.
  std::vector<Call> calls() const;
  // The same for a recording that begins now: behind them an op that may have done anything to all of that memory,
  // since nobody has recorded what was done.
  std::vector<Call> calls_to_record() const;
  // That op alone.
  static Call unrecorded();

 private:
  struct Live {
    std::uint64_t size = 0;
    MemoryKind memory = MemoryKind::device;
    bool own_pool = false;
    CUcontext context = nullptr;
  };

  void add(const Call& call);
  bool is_capturing(const StreamRef& stream) const;

  CallContext& context_;
  std::atomic<decltype(&::cuStreamIsCapturing)> is_capturing_{nullptr};
  std::map<std::uint64_t, Live> live_;  // by address
  std::vector<Call> hidden_;            // each kind once
  bool pool_asked_ = false;             // how much memory a device's pool has
  Captures captures_;
};

}  // namespace nimble
