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

void HappensBefore::order_across_streams(const Trace& trace, std::span<const std::uint32_t> calls) {
  std::size_t count = ids_.size();
  std::unordered_map<std::uint32_t, std::uint32_t> dense;
  for (std::uint32_t s = 0; s < count; ++s) dense[ids_[s]] = s;

  std::vector<Clock> at(count, Clock(count, 0));           // per stream: what comes before its next op
  std::unordered_map<std::uint32_t, Clock> event, thread;  // what a wait for it establishes; what the host knows done
  auto known_by = [&](std::uint32_t id) -> Clock& { return thread.try_emplace(id, Clock(count, 0)).first->second; };

  // A wait for a context that the trace does not name is one for all streams only where they have the same one.
  bool one_context = std::all_of(ids_.begin(), ids_.end(), [&](std::uint32_t id) {
    return trace.streams[id].context == trace.streams[ids_.front()].context;
  });

  std::uint32_t op = 0;
  for (std::uint32_t index = calls.front(); index <= calls.back(); ++index) {
    const TraceCall& call = trace.calls[index];
    if (op < calls.size() && calls[op] == index) {
      std::uint32_t s = stream_[op];
      const TraceStream& stream = trace.streams[ids_[s]];
      Clock& now = at[s];
      join(now, known_by(call.thread));
      if (call.kind == CallKind::event_wait)
        if (auto found = event.find(call.event); found != event.end()) join(now, found->second);
      for (std::uint32_t other = 0; other < count; ++other) {
        const TraceStream& peer = trace.streams[ids_[other]];
        bool pair = (stream.kind == StreamKind::legacy && blocks_with_legacy(peer.kind)) ||
                    (peer.kind == StreamKind::legacy && blocks_with_legacy(stream.kind));
        if (other != s && pair && peer.context == stream.context) join(now, at[other]);
      }
      now[s] = position_[op];
      if (clocks_.size() >= count &&
          std::equal(
              now.begin(), now.end(), clocks_.end() - static_cast<std::ptrdiff_t>(count),
              [&, i = std::size_t{0}](std::uint32_t a, std::uint32_t b) mutable { return i++ == s || a == b; })) {
        // As the op before, but for this stream's own entry, which clock() takes from position_.
        clock_.push_back(static_cast<std::uint32_t>(clocks_.size() / count - 1));
      } else {
        clock_.push_back(static_cast<std::uint32_t>(clocks_.size() / count));
        clocks_.insert(clocks_.end(), now.begin(), now.end());
      }
      if (call.kind == CallKind::event_record) event.insert_or_assign(call.event, now);
      // Recorded by the launch itself, before the kernel is through: a wait for it establishes nothing to count on.
      if (call.kind == CallKind::launch)
        for (std::uint32_t id : {call.event, call.event2}) event.erase(id);
      if (call.synchronous) join(known_by(call.thread), now);
      ++op;
      continue;
    }
    if (call.result != 0) continue;
    switch (call.kind) {
      case CallKind::stream_synchronize:
        if (auto found = dense.find(call.stream); found != dense.end()) join(known_by(call.thread), at[found->second]);
        break;
      case CallKind::event_synchronize:
        if (auto found = event.find(call.event); found != event.end()) join(known_by(call.thread), found->second);
        break;
      case CallKind::context_synchronize:
        for (std::uint32_t s = 0; s < count; ++s)
          if (call.context ? trace.streams[ids_[s]].context == *call.context : one_context)
            join(known_by(call.thread), at[s]);
        break;
      default:
        break;
    }
  }
}

}  // namespace nimble::analyzer
