#include "analyzer/plan/segments.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace nimble::analyzer {
namespace {

// Why an op cannot be a node of a graph; null if it can.
// Each kind of call has its own reasons.
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
      if (role == OpRole::barrier) return "copy from or to memory that is not in the trace";
      if (!call.plain) return "copy between contexts";
      return nullptr;
    case CallKind::set:
      if (call.synchronous) return "set that the host waits for";
      if (call.width == 0) return "set of nothing";
      if (role == OpRole::barrier) return "set of memory that is not in the trace";
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
      return "allocation that outlives the step, or from a pool that the program made";
    case CallKind::free_async:
      return "release of memory that is older than the step, or from a pool that the program made";
    default:
      return "call that is not understood";
  }
}

// What a wait of the step waits for.
struct Recorded {
  bool by_step = false;      // an op of the step, of this occurrence or of an earlier one
  std::uint32_t op = kNone;  // if it is of this occurrence
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
  std::vector<std::uint32_t> always;  // per place (before op i; the last is after the step)
  // Per place: for an event that op r of the step recorded, how often. Looking at it only matters while r is still
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

// Goes through the ops of a step, and gathers runs of them that become segments.
class Cutter {
 public:
  Cutter(const Trace& trace, const Step& step, const StepAccesses& accesses, std::span<const std::uint32_t> cuts,
         std::uint32_t min_graph_ops)
      : trace_(trace),
        step_(step),
        accesses_(accesses),
        min_graph_ops_(min_graph_ops),
        seen_(observe(trace, step)),
        recorded_(what_waits_wait_for(trace, step)) {
    const std::uint32_t n = step.period;
    result_.submit.assign(n, Submit::graph);
    result_.why_direct.assign(n, nullptr);
    result_.segment.assign(n, kNone);
    result_.comes_with.assign(n, kNone);
    result_.record.assign(n, kNone);
    result_.waits_elsewhere.assign(n, 0);
    result_.observed.assign(n, 0);
    result_.cuts.assign(cuts.begin(), cuts.end());
  }

  Segmentation run() {
    for (std::uint32_t op = 0; op < step_.period; ++op) {
      result_.observed[op] = op > 0 && is_observed(op);
      if (result_.observed[op] || std::binary_search(result_.cuts.begin(), result_.cuts.end(), op)) close(op);
      add(op);
    }
    result_.observed_at_end = is_observed(step_.period);
    close(step_.period);
    return std::move(result_);
  }

 private:
  // Whether that is so in at least half of the occurrences.
  bool half(std::uint32_t count) const { return 2 * std::uint64_t{count} >= step_.begins.size(); }

  // Whether the host waits or looks before op `op`, or after the last.
  bool is_observed(std::uint32_t op) const {
    return half(seen_.always[op]) || std::ranges::any_of(seen_.of_record[op], [&](const auto& each) {
             return half(each.second) && each.first >= begin_;
           });
  }

  void add(std::uint32_t op) {
    const TraceCall& call = trace_.calls[step_.calls()[op]];
    if (accesses_.ops[op].role == OpRole::none) {
      result_.submit[op] = Submit::plan;
      return;
    }
    if (recorded_[op].by_step) {
      result_.submit[op] = Submit::order;
      result_.record[op] = recorded_[op].op;
      return;
    }
    result_.waits_elsewhere[op] = call.kind == CallKind::event_wait;
    const char* why = why_not_in_graph(trace_, call, accesses_.ops[op].role);
    if (why == nullptr) return run_.push_back(op);
    result_.submit[op] = Submit::direct;
    result_.why_direct[op] = why;
    close(op + 1);
  }

  // Ends the run; the next one begins at op `next`.
  void close(std::uint32_t next) {
    begin_ = next;
    if (run_.size() < min_graph_ops_) {
      for (std::uint32_t op : run_) {
        result_.submit[op] = Submit::direct;
        result_.why_direct[op] = "alone between two cuts";
      }
    } else {
      for (std::uint32_t op : run_) result_.segment[op] = static_cast<std::uint32_t>(result_.segments.size());
      result_.segments.push_back({run_});
    }
    run_.clear();
  }

  const Trace& trace_;
  const Step& step_;
  const StepAccesses& accesses_;
  const std::uint32_t min_graph_ops_;
  const Observations seen_;
  const std::vector<Recorded> recorded_;
  std::vector<std::uint32_t> run_;  // ops that a graph can hold
  std::uint32_t begin_ = 0;         // where the run began, in ops
  Segmentation result_;
};

}  // namespace

Segmentation cut_into_segments(const Trace& trace, const Step& step, const StepAccesses& accesses,
                               std::span<const std::uint32_t> cuts, std::uint32_t min_graph_ops) {
  Segmentation result = Cutter(trace, step, accesses, cuts, min_graph_ops).run();
  place_waits(result);
  return result;
}

void place_waits(Segmentation& segments) {
  const auto n = static_cast<std::uint32_t>(segments.submit.size());
  const auto begins_run = [&](std::uint32_t op) {
    return std::binary_search(segments.cuts.begin(), segments.cuts.end(), op) || segments.observed[op] != 0 ||
           segments.submit[op] == Submit::direct;
  };
  std::vector<std::uint32_t> following(n, kNone);  // per op: the segment of the next node in its run
  for (std::uint32_t op = n, next = kNone; op-- > 0;) {
    if (segments.submit[op] == Submit::direct) next = kNone;
    if (segments.segment[op] != kNone) next = segments.segment[op];
    following[op] = next;
    if (begins_run(op)) next = kNone;
  }
  std::uint32_t before = kNone;  // the segment of the previous one
  for (std::uint32_t op = 0; op < n; ++op) {
    if (begins_run(op)) before = kNone;
    if (segments.segment[op] != kNone) before = segments.segment[op];
    if (segments.submit[op] != Submit::order) continue;
    segments.comes_with[op] = following[op] != kNone ? following[op] : before;
    if (segments.comes_with[op] != kNone) continue;
    segments.submit[op] = Submit::direct;
    segments.record[op] = kNone;  // the program's own wait keeps that order, and no schedule mentions it
    segments.why_direct[op] = "wait without another op that a graph could hold";
  }
}

}  // namespace nimble::analyzer
