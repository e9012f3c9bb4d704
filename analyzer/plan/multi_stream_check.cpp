#include "analyzer/plan/multi_stream_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "analyzer/order/dependencies.h"
#include "nimble/internal/use_order.h"

namespace nimble::analyzer {
namespace {

// What one stream does to one piece of memory, in the earlier and in the later of two steps. Ops of the later one are
// numbered after those of the earlier.
struct Touches {
  std::uint32_t last = kNone, last_write = kNone;    // in the earlier step
  std::uint32_t first = kNone, first_write = kNone;  // in the later one
};

class Streams {
 public:
  explicit Streams(const StreamsQuestion& question)
      : q_(question), period_(question.step.period), count_(question.order.streams()) {}

  StreamsOfStep run() {
    if (count_ > kMaxStreams)
      return {{{}},
              std::vector<std::uint32_t>(period_, 0),
              "the step runs on " + std::to_string(count_) + " streams; replay serves up to " +
                  std::to_string(kMaxStreams)};
    number();
    result_.why_not = why_not();
    return std::move(result_);
  }

 private:
  const TraceStream& stream(std::uint32_t s) const { return q_.trace.streams[q_.order.stream_id(s)]; }
  const TraceCall& call(std::uint32_t op) const { return q_.trace.calls[q_.step.calls()[op]]; }
  bool works(std::uint32_t op) const { return does_work(call(op).kind); }

  // Which stream comes first, and which others are forked from it.
  void number() {
    std::vector<std::uint32_t> work(count_, 0);
    for (std::uint32_t op = 0; op < period_; ++op) work[q_.order.stream(op)] += works(op) ? 1 : 0;
    auto rank = [&](std::uint32_t s) {
      int kind = stream(s).kind == StreamKind::legacy ? 0 : stream(s).kind == StreamKind::blocking ? 1 : 2;
      return std::tuple(kind, ~work[s], s);
    };
    std::vector<std::uint32_t> sorted(count_), place(count_);
    for (std::uint32_t s = 0; s < count_; ++s) sorted[s] = s;
    std::sort(sorted.begin(), sorted.end(), [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
    for (std::uint32_t i = 0; i < count_; ++i) {
      place[sorted[i]] = i;
      result_.streams.push_back({stream(sorted[i]).kind, i == 0});
    }
    for (std::uint32_t op = 0; op < period_; ++op) result_.of_op.push_back(place[q_.order.stream(op)]);
    if (count_ == 1) return;
    StreamPaths paths(result_.of_op, q_.segments.record, count_);
    auto first =
        static_cast<std::uint32_t>(std::find(result_.of_op.begin(), result_.of_op.end(), 0u) - result_.of_op.begin());
    std::vector<bool> seen(count_, false);
    for (std::uint32_t op = 0; op < period_; ++op) {
      std::uint32_t s = result_.of_op[op];
      if (s == 0 || seen[s] || call(op).kind == CallKind::event_wait) continue;
      seen[s] = true;
      result_.streams[s].forked = paths.before(first, op);
    }
  }

  std::string why_not() const {
    for (std::uint32_t s = 0; s < count_; ++s) {
      if (stream(s).kind == StreamKind::per_thread)
        return "the step runs on a thread's own default stream, which no other thread can name";
      if (stream(s).context != stream(0).context) return "the step runs on streams of several contexts";
    }
    if (count_ == 1) return "";
    for (std::uint32_t op = 0; op < period_; ++op)
      if (may_wait(op))
        if (std::optional<std::uint32_t> other = unordered_with(op))
          return op_text(op) + " may be waiting for something else (" + why_it_may(op) + "); the program has left " +
                 op_text(*other) + ", on another stream, unordered with it";
    return why_not_from_step_to_step();
  }

  bool may_wait(std::uint32_t op) const {
    const OpAccesses& known = q_.accesses.ops[op];
    return known.role == OpRole::barrier || known.communicates != Communicates::no || q_.segments.waits_elsewhere[op];
  }
  std::string why_it_may(std::uint32_t op) const {
    if (q_.segments.waits_elsewhere[op]) return "for an event that the step does not record";
    const OpAccesses& known = q_.accesses.ops[op];
    return q_.accesses.reasons[known.communicates != Communicates::no ? known.communicates_why : known.why];
  }

  // An op of another stream that does work, and that the program has put neither before nor after this one.
  std::optional<std::uint32_t> unordered_with(std::uint32_t op) const {
    for (std::uint32_t s = 0; s < count_; ++s) {
      if (s == q_.order.stream(op)) continue;
      auto others = q_.order.ops_on(s);
      for (std::uint32_t at = q_.order.clock(op, s); at < others.size() && !q_.order.ordered(op, others[at]); ++at)
        if (works(others[at])) return others[at];
    }
    return std::nullopt;
  }

  // Two consecutive occurrences of the step whose pointers play the same roles as the representative's.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> two_steps() const {
    std::optional<std::pair<std::uint32_t, std::uint32_t>> found;
    for (std::uint32_t i = 0; i + 1 < q_.step.begins.size(); ++i) {
      if (!q_.step.shares_pattern[i] || !q_.step.shares_pattern[i + 1]) continue;
      bool at_once = q_.step.begins[i] + period_ == q_.step.begins[i + 1];
      if (!found || at_once) found = {i, i + 1};
      if (at_once) break;
    }
    return found;
  }

  // One walk over both steps: what a piece of memory has seen so far decides each pair.
  std::string why_not_from_step_to_step() const {
    auto pair = two_steps();
    if (!pair) return "the step runs on several streams, and no two steps were recorded one after the other";
    std::vector<std::uint32_t> calls;
    for (std::uint32_t occurrence : {pair->first, pair->second})
      for (std::uint32_t index : q_.step.calls_of(occurrence)) calls.push_back(index);
    HappensBefore order(q_.trace, calls);
    if (order.streams() != count_) return "the step runs on other streams each time";

    // By object of the trace; memory with several names is one. Ops that may be waiting are listed under `everything`
    // as if they wrote, and all others that do work as if they read.
    std::map<std::uint64_t, std::vector<Touches>> memory;
    constexpr std::uint64_t everything = ~std::uint64_t{0}, several_names = everything - 1;
    auto touch = [&](std::uint64_t key, std::uint32_t op, bool writes) {
      std::vector<Touches>& streams = memory.try_emplace(key, count_).first->second;
      Touches& mine = streams[order.stream(op)];
      if (op < period_) {
        mine.last = op;
        if (writes) mine.last_write = op;
      } else {
        if (mine.first == kNone) mine.first = op;
        if (writes && mine.first_write == kNone) mine.first_write = op;
      }
    };
    for (std::uint32_t op = 0; op < calls.size(); ++op) {
      std::uint32_t of_step = op % period_;
      if (!works(of_step)) continue;
      touch(everything, op, may_wait(of_step));
      auto pointers = q_.table.pointers(calls[op]);
      for (const Access& access : q_.accesses.of(of_step)) {
        const StepObject& object = q_.objects.objects[access.object];
        if (object.step_local) continue;
        auto here = std::find_if(pointers.begin(), pointers.end(),
                                 [&](const PointerWord& pointer) { return pointer.at == access.at; });
        bool many = object.memory == MemoryKind::mapped || object.memory == MemoryKind::external;
        touch(many ? several_names : here != pointers.end() ? here->object : object.id, op, access.writes);
      }
    }
    for (const auto& [key, streams] : memory)
      for (std::uint32_t s = 0; s < count_; ++s)
        for (std::uint32_t t = 0; t < count_; ++t)
          if (s != t)
            for (auto [earlier, later] : {std::pair(streams[s].last_write, streams[t].first),
                                          std::pair(streams[s].last, streams[t].first_write)})
              if (earlier != kNone && later != kNone && !order.ordered(earlier, later))
                return "the program leaves steps unordered: " + op_text(earlier) + " and, in the next step, " +
                       op_text(later - period_) + (key == everything ? " may" : ", which touch the same memory, may") +
                       " be waiting for each other";
    return "";
  }

  std::string op_text(std::uint32_t op) const {
    std::string text = "op " + std::to_string(op) + " (" + std::string(name(call(op).kind));
    if (call(op).kind == CallKind::launch) text += " " + q_.trace.functions[call(op).function].name;
    return text + ")";
  }

  const StreamsQuestion& q_;
  const std::uint32_t period_, count_;
  StreamsOfStep result_;
};

}  // namespace

StreamsOfStep streams_of_step(const StreamsQuestion& question) { return Streams(question).run(); }

}  // namespace nimble::analyzer
