#include "analyzer/ledger/losses.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace nimble::analyzer {
namespace {

// What the threads of the program did on the host, as far as the trace tells.
class HostActivity {
 public:
  HostActivity(const Trace& trace, double from_us, double until_us) : trace_(trace) {
    for (std::uint32_t index = 0; index < trace.calls.size(); ++index) {
      const TraceCall& call = trace.calls[index];
      if (end_of(call) > from_us && call.host_begin_us < until_us) calls_[call.thread].push_back(index);
    }
    for (auto& [thread, calls] : calls_)
      std::ranges::stable_sort(calls, {}, [&](std::uint32_t index) { return trace.calls[index].host_begin_us; });
  }

  // Splits `loss`, a time in which the host has yet to submit `target`, by what the thread that does so was at.
  void split(const Loss& loss, std::uint32_t target, std::vector<Loss>& out) const {
    Loss rest = loss;
    const auto found = calls_.find(trace_.calls[target].thread);
    const std::span<const std::uint32_t> calls =
        found == calls_.end() ? std::span<const std::uint32_t>() : found->second;
    const auto is_over = [&](std::uint32_t index) { return end_of(trace_.calls[index]) <= loss.begin_us; };
    for (auto at = std::ranges::partition_point(calls, is_over); at != calls.end() && rest.begin_us < loss.end_us;
         ++at) {
      const TraceCall& call = trace_.calls[*at];
      if (call.host_begin_us >= loss.end_us) break;
      add(rest, call.host_begin_us, LossCause::host_code, target, out);
      add(rest, std::min(end_of(call), loss.end_us),
          observes(call) && !call.query ? LossCause::host_wait : LossCause::host_call, *at, out);
    }
    add(rest, loss.end_us, LossCause::host_code, target, out);
  }

  static double end_of(const TraceCall& call) { return call.host_begin_us + call.host_duration_us; }

 private:
  // Of what is left, that until `end_us`.
  static void add(Loss& rest, double end_us, LossCause cause, std::uint32_t call, std::vector<Loss>& out) {
    if (end_us <= rest.begin_us) return;
    Loss part = rest;
    part.end_us = end_us;
    part.cause = cause;
    part.call = call;
    out.push_back(part);
    rest.begin_us = end_us;
  }

  const Trace& trace_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> calls_;  // per thread, in the order in which they began
};

// But for when they were.
bool is_same(const Loss& a, const Loss& b) {
  return a.idle == b.idle && a.cause == b.cause && a.op == b.op && a.held_by == b.held_by && a.call == b.call &&
         a.dependency == b.dependency;
}

class LossFinder {
 public:
  LossFinder(const StepAnalysis& analysis, const RepeatTimes& times, const DeviceModel& device)
      : analysis_(analysis),
        times_(times),
        device_(device),
        trace_(analysis.input.trace()),
        calls_(analysis.step.calls_of(times.occurrence)),
        host_(trace_, times.from_us, times.until_us) {
    for (std::uint32_t op = 0; op < calls_.size(); ++op)
      if (times.begin_us[op] >= 0) by_begin_.push_back(op);
    by_ready_ = by_begin_;
    std::ranges::stable_sort(by_begin_, {}, [&](std::uint32_t op) { return times.begin_us[op]; });
    find_ready();
    std::ranges::stable_sort(by_ready_, {}, [&](std::uint32_t op) { return ready_us_[op]; });
    untimed_before_.push_back(0);
    for (std::uint32_t op = 0; op < calls_.size(); ++op)
      untimed_before_.push_back(untimed_before_.back() + (times.begin_us[op] < 0 && does_work(kind(op)) ? 1 : 0));
  }

  std::vector<Loss> find() {
    const std::vector<double> cuts = cut_points();
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      come_to(cuts[i - 1]);
      piece(cuts[i - 1], cuts[i]);
    }
    return std::move(losses_);
  }

 private:
  CallKind kind(std::uint32_t op) const { return trace_.calls[calls_[op]].kind; }
  // Without a common clock all counts as submitted.
  double submitted_us(std::uint32_t call) const {
    return times_.one_clock ? HostActivity::end_of(trace_.calls[call]) : times_.from_us;
  }

  // When all that an op depends on had ended. An op without a time ends when it is ready.
  void find_ready() {
    std::vector<double> end_us = times_.end_us;
    ready_us_.assign(calls_.size(), times_.from_us);
    for (std::uint32_t op = 0; op < calls_.size(); ++op) {
      for (const std::uint32_t before : analysis_.order.reduced.predecessors(op))
        ready_us_[op] = std::max(ready_us_[op], end_us[before]);
      if (end_us[op] < 0) end_us[op] = ready_us_[op];
    }
    known_end_us_ = std::move(end_us);
  }

  std::vector<double> cut_points() const {
    std::vector<double> cuts{times_.from_us, times_.until_us};
    const auto add = [&](double us) {
      if (us > times_.from_us && us < times_.until_us) cuts.push_back(us);
    };
    for (const std::uint32_t op : by_begin_) {
      add(times_.begin_us[op]);
      add(times_.end_us[op]);
      add(submitted_us(calls_[op]));
    }
    if (times_.next_call != kNone) add(submitted_us(times_.next_call));
    std::ranges::sort(cuts);
    cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
    return cuts;
  }

  // What begins and ends until `now`.
  void come_to(double now) {
    for (; ready_ < by_ready_.size() && ready_us_[by_ready_[ready_]] <= now; ++ready_)
      if (times_.begin_us[by_ready_[ready_]] > now)
        waiting_.emplace(submitted_us(calls_[by_ready_[ready_]]), by_ready_[ready_]);
    for (; next_ < by_begin_.size() && times_.begin_us[by_begin_[next_]] <= now; ++next_) {
      const std::uint32_t op = by_begin_[next_];
      waiting_.erase({submitted_us(calls_[op]), op});
      running_.emplace(times_.end_us[op], op);
      last_begun_ = std::max(last_begun_, op);
    }
    while (!running_.empty() && running_.begin()->first <= now) running_.erase(running_.begin());
  }

  double fill() const {
    double share = 0;
    for (const auto& [end, op] : running_) {
      const OpCost& cost = analysis_.times.costs[op];
      if (cost.engine == Engine::none || is_bandwidth_bound(cost))
        return 1;  // its width is not known, or does not matter
      if (cost.engine == Engine::multiprocessors)
        share += static_cast<double>(cost.multiprocessors) / device_.multiprocessors;
    }
    return share;
  }

  void piece(double begin, double end) {
    Loss loss{.begin_us = begin, .end_us = end, .idle = running_.empty()};
    if (loss.idle)
      idle(loss);
    else if (fill() < kNarrow)
      narrow(loss);
  }

  void idle(Loss loss) {
    const bool is_next_repeat = next_ == by_begin_.size();
    const std::uint32_t target = is_next_repeat ? times_.next_call : calls_[by_begin_[next_]];
    if (target == kNone || !times_.one_clock) return losses_.push_back(loss);
    if (!is_next_repeat) loss.op = by_begin_[next_];
    const std::uint32_t until = is_next_repeat ? static_cast<std::uint32_t>(calls_.size()) : loss.op;
    if (until > last_begun_ && untimed_before_[until] > untimed_before_[last_begun_]) return losses_.push_back(loss);
    if (submitted_us(target) > loss.begin_us) return host_.split(loss, target, losses_);
    loss.cause = LossCause::start;
    losses_.push_back(loss);
  }

  void narrow(Loss loss) {
    loss.held_by = running_.rbegin()->second;  // the one that runs longest
    if (!waiting_.empty()) {
      const auto [submitted, op] = *waiting_.begin();
      loss.op = op;
      if (submitted > loss.begin_us) return host_.split(loss, calls_[op], losses_);
      loss.cause = LossCause::program_order;
      return losses_.push_back(loss);
    }
    if (next_ == by_begin_.size()) {
      loss.cause = LossCause::few_blocks;
      return losses_.push_back(loss);
    }
    loss.op = by_begin_[next_];
    blocked(loss);
    losses_.push_back(loss);
  }

  // Of an op that depends on what runs: by which dependency.
  void blocked(Loss& loss) const {
    std::uint32_t to = loss.op, from = last_before(to);
    while (from != kNone && times_.end_us[from] < 0) {
      to = from;
      from = last_before(to);
    }
    if (from == kNone || known_end_us_[from] <= loss.begin_us) return;
    loss.held_by = from;
    loss.dependency = strongest(from, to);
    if (loss.dependency == nullptr) return;
    loss.cause = cause_of(*loss.dependency);
  }

  // Of the ops that it depends on, the one that ended last.
  std::uint32_t last_before(std::uint32_t op) const {
    const std::span<const std::uint32_t> before = analysis_.order.reduced.predecessors(op);
    if (before.empty()) return kNone;
    return *std::ranges::max_element(before, {}, [&](std::uint32_t each) { return known_end_us_[each]; });
  }

  // The dependency between two ops that is best known.
  const Dependency* strongest(std::uint32_t from, std::uint32_t to) const {
    const std::vector<Dependency>& all = analysis_.order.dependencies.all;
    const auto before = [](const Dependency& each, std::pair<std::uint32_t, std::uint32_t> pair) {
      return std::pair(each.to, each.from) < pair;
    };
    const Dependency* best = nullptr;
    for (auto at = std::lower_bound(all.begin(), all.end(), std::pair(to, from), before);
         at != all.end() && at->to == to && at->from == from; ++at)
      if (best == nullptr || at->evidence < best->evidence) best = &*at;
    return best;
  }

  LossCause cause_of(const Dependency& dependency) const {
    if (dependency.kind != DependencyKind::order) return LossCause::dependency;
    const auto any = [&](auto is_so) {
      const std::vector<OpAccesses>& ops = analysis_.evidence.accesses.ops;
      return is_so(ops[dependency.from]) || is_so(ops[dependency.to]);
    };
    if (any([](const OpAccesses& op) { return op.role == OpRole::barrier; })) return LossCause::evidence;
    if (any([](const OpAccesses& op) {
          return op.communicates != Communicates::no || op.blocks_wait || op.tells || op.shares;
        }))
      return LossCause::communication;
    return LossCause::dependency;
  }

  const StepAnalysis& analysis_;
  const RepeatTimes& times_;
  const DeviceModel& device_;
  const Trace& trace_;
  const std::span<const std::uint32_t> calls_;
  const HostActivity host_;
  std::vector<std::uint32_t> by_begin_, by_ready_;  // ops whose time is known
  std::vector<double> ready_us_, known_end_us_;
  std::vector<std::uint32_t> untimed_before_;
  // As of the piece that is looked at.
  std::size_t next_ = 0, ready_ = 0;  // into by_begin_ and by_ready_
  std::uint32_t last_begun_ = 0;
  std::set<std::pair<double, std::uint32_t>> running_;  // by when they end
  std::set<std::pair<double, std::uint32_t>> waiting_;  // ready and not begun, by when they were submitted
  std::vector<Loss> losses_;
};

}  // namespace

std::vector<Loss> find_losses(const StepAnalysis& analysis, const RepeatTimes& times, const DeviceModel& device) {
  std::vector<Loss> losses;
  if (times.repeats == 0) return losses;
  for (const Loss& loss : LossFinder(analysis, times, device).find())
    if (!losses.empty() && losses.back().end_us == loss.begin_us && is_same(losses.back(), loss))
      losses.back().end_us = loss.end_us;
    else
      losses.push_back(loss);
  return losses;
}

}  // namespace nimble::analyzer
