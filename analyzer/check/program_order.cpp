#include "analyzer/check/program_order.h"

#include <algorithm>
#include <map>
#include <optional>

namespace nimble::analyzer {
namespace {

using Seen = std::vector<std::uint32_t>;

void take_over(Seen& into, const Seen& other) {
  for (std::size_t s = 0; s < std::min(into.size(), other.size()); ++s) into[s] = std::max(into[s], other[s]);
}

}  // namespace

// One walk over the calls, with a case for each kind: the cases share what is known so far.
ProgramOrder::ProgramOrder(const Trace& trace, std::span<const std::uint32_t> calls, By by) {
  std::map<std::uint32_t, std::uint32_t> number;  // by the trace's id
  for (std::uint32_t call : calls)
    stream_.push_back(
        number.emplace(trace.calls[call].stream, static_cast<std::uint32_t>(number.size())).first->second);
  streams_ = static_cast<std::uint32_t>(number.size());
  if (streams_ <= 1) return;

  std::vector<std::uint32_t> id(streams_);
  for (const auto& [of_trace, mine] : number) id[mine] = of_trace;
  const bool all = by == By::everything;
  auto waits_for_legacy = [&](std::uint32_t a, std::uint32_t b) {
    const TraceStream &one = trace.streams[id[a]], &other = trace.streams[id[b]];
    return one.kind == StreamKind::legacy && other.kind != StreamKind::non_blocking && one.context == other.context;
  };
  std::vector<Seen> tail(streams_, Seen(streams_, 0));
  std::map<std::uint32_t, Seen> event, host;
  auto find = [](std::map<std::uint32_t, Seen>& known, std::uint32_t key) -> const Seen& {
    static const auto* const nothing = new Seen;  // never destroyed: libnimble.so may use it while the process ends
    auto found = known.find(key);
    return found == known.end() ? *nothing : found->second;
  };
  auto host_learns = [&](std::uint32_t thread, const Seen& what) {
    take_over(host.try_emplace(thread, streams_, 0u).first->second, what);
  };
  auto context_of = [&](std::uint32_t s) { return trace.streams[id[s]].context; };
  const bool one_context = std::all_of(id.begin(), id.end(), [&](std::uint32_t stream) {
    return trace.streams[stream].context == trace.streams[id.front()].context;
  });

  std::uint32_t op = 0;
  for (std::uint32_t index = calls.front(); op < calls.size(); ++index) {
    const TraceCall& call = trace.calls[index];
    if (index == calls[op]) {
      const std::uint32_t s = stream_[op];
      if (all) take_over(tail[s], find(host, call.thread));
      if (call.kind == CallKind::event_wait) take_over(tail[s], find(event, call.event));
      for (std::uint32_t other = 0; all && other < streams_; ++other)
        if (waits_for_legacy(s, other) || waits_for_legacy(other, s)) take_over(tail[s], tail[other]);
      tail[s][s] = op + 1;
      seen_.insert(seen_.end(), tail[s].begin(), tail[s].end());
      if (call.kind == CallKind::event_record) event[call.event] = tail[s];
      if (call.kind == CallKind::launch) event.erase(call.event), event.erase(call.event2);
      if (call.synchronous) host_learns(call.thread, tail[s]);
      ++op;
    } else if (call.result == 0 && call.kind == CallKind::stream_synchronize && number.count(call.stream)) {
      host_learns(call.thread, tail[number[call.stream]]);
    } else if (call.result == 0 && call.kind == CallKind::event_synchronize) {
      host_learns(call.thread, find(event, call.event));
    } else if (call.result == 0 && call.kind == CallKind::context_synchronize) {
      for (std::uint32_t s = 0; s < streams_; ++s)
        if (call.context ? context_of(s) == *call.context : one_context) host_learns(call.thread, tail[s]);
    }
  }
}

OwnRecord own_record(const Trace& trace, const Step& step, std::uint32_t op) {
  const std::uint32_t event = trace.calls[step.calls()[op]].event;
  const std::uint32_t wait = step.begins[step.representative] + op;
  for (std::uint32_t i = wait; i-- > 0;) {
    const TraceCall& call = trace.calls[step.ops[i]];
    const bool records = call.kind == CallKind::event_record
                             ? call.event == event
                             : call.kind == CallKind::launch && (call.event == event || call.event2 == event);
    if (!records) continue;
    // The occurrence that it is part of, if any.
    auto next = std::upper_bound(step.begins.begin(), step.begins.end(), i);
    if (call.kind == CallKind::launch || !call.plain || next == step.begins.begin()) return {};
    const std::uint32_t begin = *std::prev(next);
    if (i - begin >= step.period) return {};
    return {true, begin == step.begins[step.representative] ? i - begin : kNone};
  }
  return {};
}

}  // namespace nimble::analyzer
