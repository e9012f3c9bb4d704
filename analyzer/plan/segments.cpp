#include "analyzer/plan/segments.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace nimble::analyzer {
namespace {

// Why an op cannot be a node of a graph; null where it can.
const char* why_not_in_graph(const Trace& trace, const TraceCall& call, OpRole role) {
  switch (call.kind) {
    case CallKind::launch:
      if (!trace.functions[call.function].params) return "kernel whose parameter layout is unknown";
      if (!trace.functions[call.function].params->empty() && call.params.empty())
        return "kernel whose parameters were not recorded";
      if (call.cooperative) return "cooperative launch";
      if (!call.attributes.empty()) return "launch with attributes";
      return nullptr;
    case CallKind::copy:
      if (call.synchronous) return "copy that the host waits for";
      if (call.width == 0) return "copy of nothing";
      if (role == OpRole::barrier) return "copy from or to memory that the trace does not know";
      if (!call.plain) return "copy between contexts";
      return nullptr;
    case CallKind::set:
      if (call.synchronous) return "set that the host waits for";
      if (call.width == 0) return "set of nothing";
      if (role == OpRole::barrier) return "set of memory that the trace does not know";
      return nullptr;
    case CallKind::event_record:
      return call.plain ? nullptr : "event record with flags";
    case CallKind::event_wait:
      return "wait for an event that the step does not record";
    case CallKind::host_function:
      return "host function";
    case CallKind::graph_launch:
      return "the program's own graph";
    case CallKind::alloc_async:
      return "allocation that outlives the step, or from a pool of the program's";
    case CallKind::free_async:
      return "release of memory that is older than the step, or of a pool of the program's";
    default:
      return "call that is not read";
  }
}

// What a wait of the step waits for.
struct Recorded {
  bool by_step = false;      // an op of the step, of this occurrence or of one before
  std::uint32_t op = kNone;  // that of this occurrence
};

// Per op of the representative. Events count as recorded by the step as long as nothing else records them.
std::vector<Recorded> what_waits_wait_for(const Trace& trace, const Step& step) {
  struct Last {
    std::uint32_t occurrence, op;
  };
  std::vector<Recorded> result(step.period);
  std::unordered_map<std::uint32_t, Last> last;  // by event
  std::uint32_t occurrence = 0;
  const std::uint32_t end = step.begins[step.representative] + step.period;
  for (std::uint32_t i = 0; i < end; ++i) {
    if (occurrence < step.representative && i >= step.begins[occurrence] + step.period) ++occurrence;
    const bool inside = i >= step.begins[occurrence];
    const std::uint32_t op = i - step.begins[occurrence];
    const TraceCall& call = trace.calls[step.ops[i]];
    switch (call.kind) {
      case CallKind::event_record:
        last.erase(call.event);
        if (inside && call.plain) last[call.event] = {occurrence, op};
        break;
      case CallKind::event_wait:
        if (!inside || occurrence != step.representative || !call.plain) break;
        if (auto found = last.find(call.event); found != last.end())
          result[op] = {true, found->second.occurrence == occurrence ? found->second.op : kNone};
        break;
      case CallKind::launch:
        for (std::uint32_t id : {call.event, call.event2}) last.erase(id);
        break;
      case CallKind::graph_launch:
      case CallKind::opaque:
        last.clear();  // it may record any of them
        break;
      default:
        break;
    }
  }
  return result;
}

// Where the host looks at the GPU's progress, counted over all occurrences of the step.
struct Observations {
  std::vector<std::uint32_t> always;  // per place (before op i; the last is behind the step)
  // Per place: for an event that op r of the step recorded, how often. Looking at it matters only where r is still
  // held.
  std::vector<std::map<std::uint32_t, std::uint32_t>> of_record;
};

Observations observe(const Trace& trace, const Step& step) {
  Observations result{std::vector<std::uint32_t>(step.period + 1, 0),
                      std::vector<std::map<std::uint32_t, std::uint32_t>>(step.period + 1)};
  std::unordered_set<std::uint32_t> streams;
  for (std::uint32_t call : step.calls()) streams.insert(trace.calls[call].stream);
  std::unordered_map<std::uint32_t, std::uint32_t> recorded;  // by event: the op of this occurrence
  for (std::uint32_t occurrence = 0; occurrence < step.begins.size(); ++occurrence) {
    auto calls = step.calls_of(occurrence);
    std::size_t next = std::size_t{step.begins[occurrence]} + step.period;
    std::uint32_t end = next < step.ops.size() ? step.ops[next] : static_cast<std::uint32_t>(trace.calls.size());
    recorded.clear();
    std::unordered_set<std::uint32_t> seen_here;
    bool always_here = false;
    std::uint32_t op = 0;
    for (std::uint32_t index = calls.front(); index < end; ++index) {
      const TraceCall& call = trace.calls[index];
      if (op < calls.size() && calls[op] == index) {
        if (call.kind == CallKind::event_record) recorded[call.event] = op;
        if (call.kind == CallKind::launch)
          for (std::uint32_t id : {call.event, call.event2}) recorded.erase(id);
        ++op;
        always_here = false;
        seen_here.clear();
        continue;
      }
      bool always = false;
      switch (call.kind) {
        case CallKind::stream_synchronize:
          always = streams.count(call.stream) > 0;
          break;
        case CallKind::event_synchronize:
          if (auto found = recorded.find(call.event); found != recorded.end() && seen_here.insert(found->second).second)
            ++result.of_record[op][found->second];
          break;
        default:
          always = !is_op(call.kind) && observes(call);
          break;
      }
      if (always && !always_here) ++result.always[op];
      always_here = always_here || always;
    }
  }
  return result;
}

}  // namespace

Segmentation cut_into_segments(const Trace& trace, const Step& step, const StepAccesses& accesses,
                               std::span<const std::uint32_t> cuts, std::uint32_t min_graph_ops) {
  std::uint32_t n = step.period;
  Segmentation result;
  result.submit.assign(n, Submit::graph);
  result.why_direct.assign(n, nullptr);
  result.segment.assign(n, kNone);
  result.comes_with.assign(n, kNone);
  result.record.assign(n, kNone);
  result.waits_elsewhere.assign(n, 0);
  result.observed.assign(n, 0);
  auto calls = step.calls();
  Observations seen = observe(trace, step);
  const std::vector<Recorded> recorded = what_waits_wait_for(trace, step);
  auto half = [&](std::uint32_t count) { return 2 * std::uint64_t{count} >= step.begins.size(); };
  result.observed_at_end = half(seen.always[n]);
  result.cuts.assign(cuts.begin(), cuts.end());

  std::vector<std::uint32_t> run;
  std::uint32_t begin = 0;  // where the run began, in ops
  auto close = [&] {
    if (run.size() < min_graph_ops) {
      for (std::uint32_t op : run) {
        result.submit[op] = Submit::direct;
        result.why_direct[op] = "alone between two cuts";
      }
    } else {
      for (std::uint32_t op : run) result.segment[op] = static_cast<std::uint32_t>(result.segments.size());
      result.segments.push_back({run});
    }
    run.clear();
  };
  for (std::uint32_t op = 0; op < n; ++op) {
    bool cut = op > 0 && half(seen.always[op]);
    if (op > 0)
      for (const auto& [record, count] : seen.of_record[op]) cut = cut || (half(count) && record >= begin);
    if (cut) {
      result.observed[op] = 1;
      close();
      begin = op;
    }
    if (std::binary_search(cuts.begin(), cuts.end(), op)) {
      close();
      begin = op;
    }
    if (accesses.ops[op].role == OpRole::none) {
      result.submit[op] = Submit::plan;
      continue;
    }
    if (recorded[op].by_step) {
      result.submit[op] = Submit::order;
      result.record[op] = recorded[op].op;
      continue;
    }
    result.waits_elsewhere[op] = trace.calls[calls[op]].kind == CallKind::event_wait;
    const char* why = why_not_in_graph(trace, trace.calls[calls[op]], accesses.ops[op].role);
    if (why == nullptr) {
      run.push_back(op);
      continue;
    }
    result.submit[op] = Submit::direct;
    result.why_direct[op] = why;
    close();
    begin = op + 1;
  }
  for (const auto& [record, count] : seen.of_record[n])
    result.observed_at_end = result.observed_at_end || (half(count) && record >= begin);
  close();
  place_waits(result);
  return result;
}

void place_waits(Segmentation& segments) {
  const auto n = static_cast<std::uint32_t>(segments.submit.size());
  const auto begins_run = [&](std::uint32_t op) {
    return std::binary_search(segments.cuts.begin(), segments.cuts.end(), op) || segments.observed[op] != 0 ||
           segments.submit[op] == Submit::direct;
  };
  std::vector<std::uint32_t> behind(n, kNone);  // per op: the segment of the next node in its run
  for (std::uint32_t op = n, next = kNone; op-- > 0;) {
    if (segments.submit[op] == Submit::direct) next = kNone;
    if (segments.segment[op] != kNone) next = segments.segment[op];
    behind[op] = next;
    if (begins_run(op)) next = kNone;
  }
  std::uint32_t before = kNone;  // the segment of the last one
  for (std::uint32_t op = 0; op < n; ++op) {
    if (begins_run(op)) before = kNone;
    if (segments.segment[op] != kNone) before = segments.segment[op];
    if (segments.submit[op] != Submit::order) continue;
    segments.comes_with[op] = behind[op] != kNone ? behind[op] : before;
    if (segments.comes_with[op] != kNone) continue;
    segments.submit[op] = Submit::direct;
    segments.record[op] = kNone;  // the program's own wait keeps that order, and no schedule tells of it
    segments.why_direct[op] = "wait with nothing beside it that a graph could hold";
  }
}

}  // namespace nimble::analyzer
