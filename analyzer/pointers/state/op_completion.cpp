#include "analyzer/pointers/state/op_completion.h"

#include <set>

namespace nimble::analyzer {

void OpCompletion::order_before(std::uint32_t end) {
  std::vector<std::uint32_t> ops;
  std::set<std::uint32_t> streams;
  place_.assign(end, kNone);
  for (std::uint32_t index = 0; index < end; ++index) {
    const TraceCall& call = trace_.calls[index];
    if (!is_op(call.kind) || call.stream == kNone || call.result != 0) continue;
    place_[index] = static_cast<std::uint32_t>(ops.size());
    ops.push_back(index);
    streams.insert(call.stream);
  }
  if (streams.size() > 1 && streams.size() <= kMostStreams) order_.emplace(trace_, ops);
}

void OpCompletion::note_wait(const TraceCall& wait) {
  if (wait.context) waited_.emplace(*wait.context, wait.host_begin_us + wait.host_duration_us);
}

bool OpCompletion::is_over(std::uint32_t call, std::uint32_t before) const {
  if (trace_.calls[call].symbol == kNotRecorded) {
    const auto waited = waited_.find(trace_.streams[trace_.calls[before].stream].context);
    return waited != waited_.end() && waited->second <= trace_.calls[before].host_begin_us;
  }
  if (trace_.calls[call].stream == trace_.calls[before].stream) return true;
  return order_ && place_[call] != kNone && place_[before] != kNone && order_->ordered(place_[call], place_[before]);
}

}  // namespace nimble::analyzer
