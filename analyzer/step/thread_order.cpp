#include "analyzer/step/thread_order.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "analyzer/memory/objects.h"
#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {
namespace {

// Which calls of other threads each call needs to be done before it.
class Needs {
 public:
  explicit Needs(const Trace& trace) : trace_(trace), table_(trace), of_(trace.calls.size()) {
    for (std::uint32_t i = 0; i < trace.calls.size(); ++i) add(i);
  }
  const std::vector<std::uint32_t>& of(std::uint32_t call) const { return of_[call]; }

 private:
  struct Memory {
    std::uint64_t end;
    std::uint32_t call;
  };

  void add(std::uint32_t index) {
    const TraceCall& call = trace_.calls[index];
    const bool everything = concerns_everything(call);
    need(index, last_of_all_);
    if (everything) {
      for (const auto& [thread, last] : last_of_thread_) need(index, last);
      last_of_all_ = index;
    }
    if (call.stream != kNone) on_stream(index, call.stream);
    for (const std::uint32_t event : {call.event, call.event2})
      if (event != kNone) need(index, std::exchange(last_on_event_.try_emplace(event, kNone).first->second, index));
    const bool born = call.kind == CallKind::alloc || call.kind == CallKind::alloc_async;
    const bool dies = call.kind == CallKind::free || call.kind == CallKind::free_async;
    for (const PointerWord& pointer : table_.pointers(index)) {
      auto& users = users_[pointer.object];
      if (dies || born) {
        for (const auto& [thread, user] : users) need(index, user);
      } else if (const Object& object = table_.objects()[pointer.object]; object.birth != kNone) {
        need(index, object.birth);
      }
      users[call.thread] = index;
    }
    if (call.result == 0 && (born || dies) && call.address != 0) on_memory(index, call, born);
    last_of_thread_[call.thread] = index;
  }

  // Calls that may concern any stream.
  static bool concerns_everything(const TraceCall& call) {
    switch (call.kind) {
      case CallKind::context_synchronize:
      case CallKind::capture_begin:
      case CallKind::capture_end:
      case CallKind::hidden:
      case CallKind::context_end:
      case CallKind::host_function:
      case CallKind::opaque:
      case CallKind::step_begin:  // whichever thread made it, it was before the mark or after it
      case CallKind::step_end:
        return true;
      case CallKind::free:
        return call.result == 0;  // waits for all work
      default:
        return false;
    }
  }

  // A legacy default stream concerns all others.
  void on_stream(std::uint32_t index, std::uint32_t stream) {
    if (stream < trace_.streams.size() && trace_.streams[stream].kind == StreamKind::legacy) {
      for (auto& [other, last] : last_on_stream_) need(index, last);
      last_on_legacy_ = index;
    } else {
      need(index, last_on_legacy_);
    }
    need(index, std::exchange(last_on_stream_.try_emplace(stream, kNone).first->second, index));
  }

  // Memory that is allocated again: after its last release.
  void on_memory(std::uint32_t index, const TraceCall& call, bool born) {
    const std::uint64_t begin = call.address, end = begin + std::max<std::uint64_t>(call.size, 1);
    auto at = memory_.upper_bound(begin);
    if (at != memory_.begin() && std::prev(at)->second.end > begin) --at;
    for (; at != memory_.end() && at->first < end;) {
      need(index, at->second.call);
      at = born ? memory_.erase(at) : std::next(at);
    }
    if (born) {
      memory_[begin] = {end, index};
    } else if (auto found = memory_.find(begin); found != memory_.end()) {
      found->second.call = index;
    }
  }

  void need(std::uint32_t index, std::uint32_t other) {
    if (other != kNone && trace_.calls[other].thread != trace_.calls[index].thread) of_[index].push_back(other);
  }

  const Trace& trace_;
  const ObjectTable table_;
  std::vector<std::vector<std::uint32_t>> of_;
  std::unordered_map<std::uint32_t, std::uint32_t> last_of_thread_, last_on_stream_, last_on_event_;
  std::uint32_t last_of_all_ = kNone, last_on_legacy_ = kNone;
  std::unordered_map<std::uint32_t, std::unordered_map<std::uint32_t, std::uint32_t>> users_;  // by object and thread
  std::map<std::uint64_t, Memory> memory_;  // by address: who has allocated or freed it last
};

}  // namespace

std::vector<std::uint32_t> thread_order(const Trace& trace) {
  struct Thread {
    std::uint32_t id, work = 0;
    std::vector<std::uint32_t> calls;
    std::size_t next = 0;
  };
  std::vector<Thread> threads;
  std::unordered_map<std::uint32_t, std::size_t> number;
  for (std::uint32_t i = 0; i < trace.calls.size(); ++i) {
    auto [entry, is_new] = number.emplace(trace.calls[i].thread, threads.size());
    if (is_new) threads.push_back({trace.calls[i].thread, 0, {}, 0});
    threads[entry->second].calls.push_back(i);
    if (is_op(trace.calls[i].kind)) ++threads[entry->second].work;
  }
  if (std::count_if(threads.begin(), threads.end(), [](const Thread& thread) { return thread.work > 0; }) < 2)
    return {};
  std::sort(threads.begin(), threads.end(),
            [](const Thread& a, const Thread& b) { return std::pair(b.work, a.id) < std::pair(a.work, b.id); });
  for (std::size_t t = 0; t < threads.size(); ++t) number[threads[t].id] = t;

  const Needs needs(trace);
  std::vector<std::uint32_t> order, wanted;  // wanted: what goes on is what the last of these needs
  std::vector<bool> done(trace.calls.size(), false);
  order.reserve(trace.calls.size());
  for (const Thread& main : threads) {
    wanted.push_back(main.calls.back());
    while (!wanted.empty()) {
      if (done[wanted.back()]) {
        wanted.pop_back();
        continue;
      }
      Thread& thread = threads[number[trace.calls[wanted.back()].thread]];
      const std::uint32_t call = thread.calls[thread.next];
      const auto& before = needs.of(call);
      // If there are several, the one that came first: what it needs in turn came earlier still.
      std::uint32_t missing = kNone;
      for (const std::uint32_t other : before)
        if (!done[other]) missing = std::min(missing, other);
      if (missing != kNone) {
        wanted.push_back(missing);
        continue;
      }
      done[call] = true;
      ++thread.next;
      order.push_back(call);
    }
  }
  return order;
}

void order_threads(Trace& trace) {
  const std::vector<std::uint32_t> order = thread_order(trace);
  if (order.empty()) return;
  std::vector<TraceCall> calls;
  calls.reserve(trace.calls.size());
  for (const std::uint32_t call : order) calls.push_back(std::move(trace.calls[call]));
  trace.calls = std::move(calls);
}

}  // namespace nimble::analyzer
