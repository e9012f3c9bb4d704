// The bars of a trace's stream tracks: when each op ran. By device time, if one arrives, before its op or after it;
// else by the host's.
//
// Owns the times that have no op yet, and the ops that have no time yet. Used by the writer's thread alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nimble/internal/trace.h"
#include "shim/record/facts/device_time.h"
#include "shim/record/trace/trace_definitions.h"

namespace nimble::shim {

class StreamTracks {
 public:
  struct Op {
    std::uint64_t seq = 0;
    std::uint32_t stream = 0, function = kNone;
    const char* symbol = "";
    CallKind kind = CallKind::opaque;
  };

  // Appends bars to `out`; times count from `epoch_ns`. Both referenced objects must outlive it.
  StreamTracks(const TraceDefinitions& definitions, std::string& out, std::uint64_t epoch_ns)
      : definitions_(definitions), out_(out), epoch_ns_(epoch_ns) {}

  double microseconds(std::uint64_t ns) const { return ns > epoch_ns_ ? static_cast<double>(ns - epoch_ns_) / 1e3 : 0; }

  // No device time will come for the op: uses the host's, which may overlap ops of another thread.
  void add(const Op& op, double begin_us, double duration_us);
  // A time with this ticket will come for the op. Returns it if it has come already.
  std::optional<DeviceTime> await(std::uint64_t ticket, const Op& op);
  // A time has come. Writes its op's bar if there is room.
  void came(const DeviceTime& time, bool has_room);
  // The op is not in the trace after all; or none of the awaited ones is.
  void forget(std::uint64_t ticket) { awaited_.erase(ticket); }
  void forget_awaited() { awaited_.clear(); }

 private:
  void bar(const Op& op, double begin_us, double duration_us, std::string_view more);

  const TraceDefinitions& definitions_;
  std::string& out_;
  const std::uint64_t epoch_ns_;
  std::vector<double> busy_until_us_;                    // per stream: bars of one track must not overlap
  std::unordered_map<std::uint64_t, Op> awaited_;        // by ticket
  std::unordered_map<std::uint64_t, DeviceTime> early_;  // by ticket: times that came before their op
};

}  // namespace nimble::shim
