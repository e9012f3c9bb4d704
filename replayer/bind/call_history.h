// The part of a process's past driver calls that matters to a replay, or a recording, that begins later: which memory
// is allocated, what may reach memory that no parameter names, whether a stream captures, and queries of pools.
//
// Memory that may have ended with a context stays: a later allocation at its address replaces it. Follows the few calls
// that matter; all others may be left out. Not synchronised, except prepare().
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

  // Looks up the driver function that it needs. Any thread, without locks, before either of these:
  void prepare();

  // Whether the call is one of those that matter.
  static bool matters(const Call& call);

  // Releases of memory and beginnings of captures count from before the driver call, everything else from its return.
  void before(const Call& call);
  void after(const Call& call, CUresult result);

  bool capturing() const { return captures_.any(); }

  // Resumes following calls, with these live allocations and no capture.
  void restart(const std::vector<Allocation>& alive);

  // Successful calls with the same effect as all so far: `hidden` ones first, then allocations by address. Their notes
  // are constants.
  std::vector<Call> calls() const;
  // The same for a recording that begins now: followed by an op that may have done anything to all of that memory,
  // since what was done is not recorded.
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
