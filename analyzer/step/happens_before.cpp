#include "analyzer/step/happens_before.h"

#include <algorithm>
#include <unordered_map>

namespace nimble::analyzer {
namespace {

using Clock = std::vector<std::uint32_t>;

void join(Clock& into, const Clock& other) {
  for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
}

bool blocks_with_legacy(StreamKind kind) { return kind != StreamKind::non_blocking; }

}  // namespace

HappensBefore::HappensBefore(const Trace& trace, std::span<const std::uint32_t> calls) {
  std::unordered_map<std::uint32_t, std::uint32_t> dense;
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    std::uint32_t id = trace.calls[calls[op]].stream;
    auto [entry, is_new] = dense.emplace(id, static_cast<std::uint32_t>(ids_.size()));
    if (is_new) {
      ids_.push_back(id);
      ops_.emplace_back();
    }
    ops_[entry->second].push_back(op);
    stream_.push_back(entry->second);
    position_.push_back(static_cast<std::uint32_t>(ops_[entry->second].size()));
  }
  too_many_streams_ = ids_.size() > kMaxStreams;
  if (ids_.size() > 1 && !too_many_streams_) order_across_streams(trace, calls);
}

// What is known to be done, as the calls of a step go by: one clock per stream, event and thread.
struct HappensBefore::Progress {
  Progress(const Trace& calls, const std::vector<std::uint32_t>& ids)
      : trace(calls), streams(ids), at(ids.size(), Clock(ids.size(), 0)) {
    for (std::uint32_t s = 0; s < ids.size(); ++s) dense[ids[s]] = s;
    one_context = std::all_of(ids.begin(), ids.end(), [&](std::uint32_t id) {
      return trace.streams[id].context == trace.streams[ids.front()].context;
    });
  }

  Clock& known_by(std::uint32_t id) { return thread.try_emplace(id, Clock(streams.size(), 0)).first->second; }

  // All that the program has put before an op that is submitted to stream `s` now.
  Clock& before_op(const TraceCall& call, std::uint32_t s) {
    const TraceStream& stream = trace.streams[streams[s]];
    Clock& now = at[s];
    join(now, known_by(call.thread));
    if (call.kind == CallKind::event_wait)
      if (auto found = event.find(call.event); found != event.end()) join(now, found->second);
    for (std::uint32_t other = 0; other < streams.size(); ++other) {
      const TraceStream& peer = trace.streams[streams[other]];
      const bool pair = (stream.kind == StreamKind::legacy && blocks_with_legacy(peer.kind)) ||
                        (peer.kind == StreamKind::legacy && blocks_with_legacy(stream.kind));
      if (other != s && pair && peer.context == stream.context) join(now, at[other]);
    }
    return now;
  }

  void after_op(const TraceCall& call, const Clock& now) {
    if (call.kind == CallKind::event_record) event.insert_or_assign(call.event, now);
    // Recorded by the launch itself, before the kernel is done: a wait for it establishes nothing reliable.
    if (call.kind == CallKind::launch)
      for (std::uint32_t id : {call.event, call.event2}) event.erase(id);
    if (call.synchronous) join(known_by(call.thread), now);
  }

  void host_waits(const TraceCall& call) {
    if (call.result != 0) return;
    switch (call.kind) {
      case CallKind::stream_synchronize:
        if (auto found = dense.find(call.stream); found != dense.end()) join(known_by(call.thread), at[found->second]);
        return;
      case CallKind::event_synchronize:
        if (auto found = event.find(call.event); found != event.end()) join(known_by(call.thread), found->second);
        return;
      case CallKind::context_synchronize:
        for (std::uint32_t s = 0; s < streams.size(); ++s)
          if (call.context ? trace.streams[streams[s]].context == *call.context : one_context)
            join(known_by(call.thread), at[s]);
        return;
      default:
        return;
    }
  }

  const Trace& trace;
  const std::vector<std::uint32_t>& streams;  // their ids in the trace
  std::unordered_map<std::uint32_t, std::uint32_t> dense;
  std::vector<Clock> at;                            // per stream: what comes before its next op
  std::unordered_map<std::uint32_t, Clock> event;   // what a wait for it establishes
  std::unordered_map<std::uint32_t, Clock> thread;  // what the host knows to be done
  // A wait for a context that the trace does not name is one for all streams only if they have the same one.
  bool one_context = false;
};

void HappensBefore::order_across_streams(const Trace& trace, std::span<const std::uint32_t> calls) {
  const std::size_t count = ids_.size();
  Progress progress(trace, ids_);
  std::uint32_t op = 0;
  for (std::uint32_t index = calls.front(); index <= calls.back(); ++index) {
    const TraceCall& call = trace.calls[index];
    if (op >= calls.size() || calls[op] != index) {
      progress.host_waits(call);
      continue;
    }
    const std::uint32_t s = stream_[op];
    Clock& now = progress.before_op(call, s);
    now[s] = position_[op];
    if (clocks_.size() >= count &&
        std::equal(now.begin(), now.end(), clocks_.end() - static_cast<std::ptrdiff_t>(count),
                   [&, i = std::size_t{0}](std::uint32_t a, std::uint32_t b) mutable { return i++ == s || a == b; })) {
      // The same as for the op before, except for this stream's own entry, which clock() takes from position_.
      clock_.push_back(static_cast<std::uint32_t>(clocks_.size() / count - 1));
    } else {
      clock_.push_back(static_cast<std::uint32_t>(clocks_.size() / count));
      clocks_.insert(clocks_.end(), now.begin(), now.end());
    }
    progress.after_op(call, now);
    ++op;
  }
}

}  // namespace nimble::analyzer
