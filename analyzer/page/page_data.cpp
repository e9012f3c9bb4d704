#include "analyzer/page/page_data.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "analyzer/base/json_text.h"
#include "analyzer/base/text.h"
#include "analyzer/page/replay_times.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

// Texts that are named by a number, since they come again and again.
class Texts {
 public:
  std::uint32_t number(std::string text) {
    const auto [at, is_new] = numbers_.try_emplace(std::move(text), static_cast<std::uint32_t>(list_.size()));
    if (is_new) list_.push_back(&at->first);
    return at->second;
  }
  void write(JsonText& out, std::string_view key) const {
    out.key(key).open('[');
    for (const std::string* text : list_) out.text(*text);
    out.close(']').newline();
  }

 private:
  std::map<std::string, std::uint32_t> numbers_;
  std::vector<const std::string*> list_;
};

// A longest path through the dependencies, by the ops' times.
std::vector<std::uint8_t> on_critical_path(const StepAnalysis& analysis) {
  const Dag& dag = analysis.order.reduced;
  std::vector<double> until(dag.nodes());
  std::vector<std::uint32_t> through(dag.nodes(), kNone);
  std::uint32_t last = kNone;
  for (std::uint32_t op = 0; op < dag.nodes(); ++op) {
    for (const std::uint32_t before : dag.predecessors(op))
      if (through[op] == kNone || until[before] > until[through[op]]) through[op] = before;
    until[op] = analysis.times.costs[op].device_us + (through[op] == kNone ? 0 : until[through[op]]);
    if (last == kNone || until[op] > until[last]) last = op;
  }
  std::vector<std::uint8_t> on_path(dag.nodes());
  for (; last != kNone; last = through[last]) on_path[last] = 1;
  return on_path;
}

class PageData {
 public:
  PageData(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device, std::uint32_t from)
      : analysis_(analysis),
        ledger_(ledger),
        device_(device),
        trace_(analysis.input.trace()),
        from_(std::min(from, analysis.step.period)),
        until_(from_ + std::min(analysis.step.period - from_, kMostOpsOfPage)),
        is_timed_(ledger.times.repeats > 0),
        calls_(is_timed_ ? analysis.step.calls_of(ledger.times.occurrence) : analysis.step.calls()),
        origin_us_(!is_timed_    ? host_begin()
                   : one_clock() ? std::min(ledger.times.from_us, host_begin())
                                 : ledger.times.from_us) {}

  std::string text() {
    out_.open('{').key("nimble_page").number(1).newline();
    head();
    ops();
    after();
    host();
    touched();
    dependencies();
    memory();
    losses();
    texts_.write(out_, "texts");
    if (is_timed_)
      out_.key("ledger").raw(ledger_json(analysis_, ledger_, device_));
    else
      out_.key("ledger").null();
    return out_.newline().close('}').newline().take();
  }

 private:
  double host_begin() const { return trace_.calls[calls_.front()].host_begin_us; }
  double since(double us) const { return us - origin_us_; }
  // Of the host: without a common clock, from the step's first call.
  double since_on_host(double us) const { return us - (one_clock() ? origin_us_ : host_begin()); }
  bool one_clock() const { return !is_timed_ || ledger_.times.one_clock; }

  template <typename Value>
  void column(std::string_view key, Value value) {
    out_.key(key).open('[');
    for (std::uint32_t op = from_; op < until_; ++op) value(op);
    out_.close(']').newline();
  }
  void times(std::string_view key, const std::vector<double>& us, double origin) {
    column(key, [&](std::uint32_t op) { out_.real(us[op] < 0 ? -1 : us[op] - origin); });
  }

  void head() {
    out_.key("trace").text(analysis_.input.file->path).key("program").text(trace_.program);
    out_.key("device").text(trace_.device).key("trust").text(name(analysis_.evidence.trust));
    out_.key("simulated").boolean(trace_.device.find("Simulated") != std::string::npos);
    out_.key("timed").boolean(is_timed_).key("one_clock").boolean(one_clock()).newline();
    out_.key("ops_of_step").number(analysis_.step.period).key("repeats").number(analysis_.step.begins.size());
    out_.key("from").number(from_).key("until").number(until_);
    out_.key("schedule").text(analysis_.plan.status == kExitOk ? analysis_.plan.chosen : "");
    out_.key("why_no_schedule").text(analysis_.plan.why_no_schedule);
    out_.key("multiprocessors").number(static_cast<std::uint64_t>(device_.multiprocessors)).newline();
    const auto names = [&](std::string_view key, int count, auto name_of) {
      out_.key(key).open('[');
      for (int i = 0; i < count; ++i) out_.text(name_of(i));
      out_.close(']').newline();
    };
    names("evidences", kEvidences, [](int i) { return name(static_cast<Evidence>(i)); });
    const auto role = [](int i) {
      constexpr std::string_view roles[] = {"accesses", "barrier", "record", "wait", "none"};
      return roles[i];
    };
    names("roles", static_cast<int>(OpRole::none) + 1, role);
    names("dependency_kinds", kDependencyKinds, [](int i) { return name(static_cast<DependencyKind>(i)); });
  }

  void ops() {
    const std::vector<std::uint8_t> critical = on_critical_path(analysis_);
    out_.key("ops").open('{').newline();
    column("name", [&](std::uint32_t op) { out_.number(texts_.number(describe_op(analysis_, op, 160))); });
    column("stream", [&](std::uint32_t op) { number_or_null(trace_.calls[calls_[op]].stream); });
    column("blocks", [&](std::uint32_t op) {
      const TraceCall& call = trace_.calls[calls_[op]];
      out_.number(call.kind == CallKind::launch ? std::uint64_t{call.grid[0]} * call.grid[1] * call.grid[2] : 0);
    });
    column("multiprocessors", [&](std::uint32_t op) {
      const OpCost& cost = analysis_.times.costs[op];
      out_.number(cost.engine == Engine::multiprocessors ? static_cast<std::uint64_t>(cost.multiprocessors) : 0);
    });
    column("evidence", [&](std::uint32_t op) {
      out_.number(static_cast<std::uint64_t>(analysis_.evidence.accesses.ops[op].evidence));
    });
    column("why", [&](std::uint32_t op) {
      const OpAccesses& accesses = analysis_.evidence.accesses.ops[op];
      const std::uint32_t why = accesses.role == OpRole::barrier ? accesses.why : accesses.communicates_why;
      if (why == kNone) return void(out_.null());
      out_.number(texts_.number(analysis_.evidence.accesses.reasons[why]));
    });
    column("role", [&](std::uint32_t op) {
      out_.number(static_cast<std::uint64_t>(analysis_.evidence.accesses.ops[op].role));
    });
    column("timed", [&](std::uint32_t op) { out_.number(is_timed_ && ledger_.times.begin_us[op] >= 0 ? 1 : 0); });
    column("segment", [&](std::uint32_t op) { number_or_null(analysis_.cut.segments.segment[op]); });
    column("critical", [&](std::uint32_t op) { out_.number(critical[op]); });
    if (is_timed_) {
      times("begin", ledger_.times.begin_us, origin_us_);
      times("end", ledger_.times.end_us, origin_us_);
    }
    column("call_begin", [&](std::uint32_t op) { out_.real(since_on_host(trace_.calls[calls_[op]].host_begin_us)); });
    column("call_us", [&](std::uint32_t op) { out_.real(trace_.calls[calls_[op]].host_duration_us); });
    column("predicted_us", [&](std::uint32_t op) { out_.real(analysis_.times.costs[op].device_us); });
    out_.close('}').newline();
  }

  void after() {
    const ReplayTimes replay = replay_times(analysis_, device_);
    if (replay.begin_us.empty()) return void(out_.key("after").null().newline());
    out_.key("after").open('{').key("step_us").real(replay.step_us).newline();
    times("begin", replay.begin_us, 0);
    times("end", replay.end_us, 0);
    column("lane", [&](std::uint32_t op) { out_.number(replay.lane[op]); });
    out_.key("launches").open('[');
    for (const ReplayTimes::Launch& launch : replay.launches)
      out_.open('[').real(launch.begin_us).real(launch.end_us).number(launch.nodes).close(']');
    out_.close(']').close('}').newline();
  }

  // The calls of the repeat up to the next op after it, of any thread. Of too many, those that put work on a stream.
  void host() {
    std::vector<std::uint32_t> shown;
    std::vector<std::uint32_t> op_of(trace_.calls.size(), kNone);
    for (std::uint32_t op = from_; op < until_; ++op) op_of[calls_[op]] = op;
    const std::uint32_t end = end_of_calls();
    for (std::uint32_t call = calls_[from_]; call < end; ++call) shown.push_back(call);
    const bool all = shown.size() <= 2 * kMostOpsOfPage;
    if (!all) std::erase_if(shown, [&](std::uint32_t call) { return op_of[call] == kNone; });
    out_.key("host").open('{').key("all").boolean(all).newline();
    const auto column_of_calls = [&](std::string_view key, auto value) {
      out_.key(key).open('[');
      for (const std::uint32_t call : shown) value(call, trace_.calls[call]);
      out_.close(']').newline();
    };
    column_of_calls(
        "name", [&](std::uint32_t, const TraceCall& call) { out_.number(texts_.number(shortened(call.symbol, 80))); });
    column_of_calls("op", [&](std::uint32_t index, const TraceCall&) { number_or_null(op_of[index]); });
    column_of_calls("thread", [&](std::uint32_t, const TraceCall& call) { out_.number(call.thread); });
    column_of_calls("begin",
                    [&](std::uint32_t, const TraceCall& call) { out_.real(since_on_host(call.host_begin_us)); });
    column_of_calls("us", [&](std::uint32_t, const TraceCall& call) { out_.real(call.host_duration_us); });
    column_of_calls("waits",
                    [&](std::uint32_t, const TraceCall& call) { out_.number(observes(call) && !call.query ? 1 : 0); });
    out_.close('}').newline();
  }

  // The call after those that are shown: the next op, of the repeat or after it.
  std::uint32_t end_of_calls() const {
    if (until_ < analysis_.step.period) return calls_[until_];
    const std::vector<std::uint32_t>& ops = analysis_.step.ops;
    const auto after = std::ranges::upper_bound(ops, calls_.back());
    return after == ops.end() ? static_cast<std::uint32_t>(trace_.calls.size()) : *after;
  }

  // Objects that the ops touch, and how: of op i, `accesses` from first[i] on, each [object, 1 reads + 2 writes,
  // evidence, first byte, bytes].
  void touched() {
    std::map<std::uint32_t, std::uint32_t> numbers;
    std::vector<std::uint32_t> objects;
    std::uint32_t count = 0;
    column("first_access", [&](std::uint32_t op) {
      out_.number(count);
      count += analysis_.evidence.accesses.ops[op].count;
    });
    out_.key("accesses").open('[');
    for (std::uint32_t op = from_; op < until_; ++op)
      for (const Access& access : analysis_.evidence.accesses.of(op)) {
        const auto [at, is_new] = numbers.try_emplace(access.object, static_cast<std::uint32_t>(objects.size()));
        if (is_new) objects.push_back(access.object);
        out_.open('[').number(at->second).number((access.reads ? 1u : 0u) + (access.writes ? 2u : 0u));
        out_.number(static_cast<std::uint64_t>(access.evidence)).number(access.rect.begin);
        out_.number(access.rect.end() - access.rect.begin).close(']');
      }
    out_.close(']').newline().key("objects").open('[');
    for (const std::uint32_t object : objects) out_.text(describe_object(analysis_, object));
    out_.close(']').newline();
    numbers_ = std::move(numbers);
  }

  // [from, to, kind, evidence, object or -1], by `to` ascending.
  void dependencies() {
    out_.key("dependencies").open('[');
    for (const Dependency& each : analysis_.order.dependencies.all) {
      if (each.from < from_ || each.to >= until_) continue;
      out_.open('[').number(each.from).number(each.to).number(static_cast<std::uint64_t>(each.kind));
      out_.number(static_cast<std::uint64_t>(each.evidence));
      const auto found = numbers_.find(each.object);
      if (found == numbers_.end())
        out_.null();
      else
        out_.number(found->second);
      out_.close(']');
    }
    out_.close(']').newline().key("races").open('[');
    for (const Race& race : analysis_.order.dependencies.races)
      if (race.first >= from_ && race.second < until_)
        out_.open('[').number(race.first).number(race.second).number(race.communicate ? 1 : 0).close(']');
    out_.close(']').newline().key("needed").open('[');
    for (const auto& [from, to] : analysis_.order.reduced.edges())
      if (from >= from_ && to < until_) out_.open('[').number(from).number(to).close(']');
    out_.close(']').newline();
  }

  // The step's own objects: [first op, last op, bytes, place in the plan].
  void memory() {
    const MemoryPlan& plan = analysis_.plan.memory;
    out_.key("memory").open('{').key("plan_bytes").number(plan.arena_bytes);
    out_.key("peak_bytes").number(plan.program_peak_bytes).key("objects").open('[');
    for (std::size_t object = 0; object < analysis_.objects.objects.size(); ++object) {
      const StepObject& each = analysis_.objects.objects[object];
      if (!each.step_local || each.alloc >= until_ || each.free < from_ || object >= plan.offset.size()) continue;
      out_.open('[').number(each.alloc).number(each.free).number(each.size).number(plan.offset[object]).close(']');
    }
    out_.close(']').close('}').newline();
  }

  // [begin, end, idle, cause, op that could have run or null], and the names of the causes.
  void losses() {
    out_.key("causes").open('[');
    for (int cause = 0; cause < kLossCauses; ++cause) out_.text(name(static_cast<LossCause>(cause)));
    out_.close(']').newline().key("losses").open('[');
    const auto [first_us, last_us] = shown_us();
    std::size_t left = 2 * std::size_t{kMostOpsOfPage};
    for (const Loss& loss : find_losses(analysis_, ledger_.times, device_)) {
      if (loss.end_us <= first_us || loss.begin_us >= last_us) continue;
      if (left-- == 0) break;
      out_.open('[').real(since(loss.begin_us)).real(since(loss.end_us)).number(loss.idle ? 1 : 0);
      out_.number(static_cast<std::uint64_t>(loss.cause));
      number_or_null(loss.op);
      out_.close(']');
    }
    out_.close(']').newline();
  }

  // From when to when the shown ops ran; if all of the step is shown, to its end.
  std::pair<double, double> shown_us() const {
    double first = ledger_.times.until_us, last = ledger_.times.from_us;
    if (is_timed_)
      for (std::uint32_t op = from_; op < until_; ++op)
        if (ledger_.times.begin_us[op] >= 0) {
          first = std::min(first, ledger_.times.begin_us[op]);
          last = std::max(last, ledger_.times.end_us[op]);
        }
    return {from_ == 0 ? ledger_.times.from_us : first,
            until_ == analysis_.step.period ? ledger_.times.until_us : last};
  }

  void number_or_null(std::uint32_t value) {
    if (value == kNone)
      out_.null();
    else
      out_.number(value);
  }

  const StepAnalysis& analysis_;
  const Ledger& ledger_;
  const DeviceModel& device_;
  const Trace& trace_;
  const std::uint32_t from_, until_;
  const bool is_timed_;
  const std::span<const std::uint32_t> calls_;
  const double origin_us_;
  Texts texts_;
  std::map<std::uint32_t, std::uint32_t> numbers_;  // of the objects, in the page
  JsonText out_;
};

}  // namespace

std::string page_data(const StepAnalysis& analysis, const Ledger& ledger, const DeviceModel& device,
                      std::uint32_t from) {
  return PageData(analysis, ledger, device, from).text();
}

}  // namespace nimble::analyzer
