#include "analyzer/ledger/losses.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "analyzer/ledger/host_activity.h"

namespace nimble::analyzer {
namespace {

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
    find_others();
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
  // When the host had submitted a call's op: with the call's end, or when the op began, if the call waited for it.
  // Without a common clock all counts as submitted.
  double submitted_us(std::uint32_t index) const {
    if (!times_.one_clock) return times_.from_us;
    const TraceCall& call = trace_.calls[index];
    const double end_us = call.host_begin_us + call.host_duration_us;
    if (!is_timed(call)) return end_us;
    return std::clamp(call.device_begin_us, std::min(call.host_begin_us, end_us), end_us);
  }

  // What else the GPU ran meanwhile: ops of other repeats, and between them.
  void find_others() {
    for (std::uint32_t index = 0; index < trace_.calls.size(); ++index) {
      const TraceCall& call = trace_.calls[index];
      if (!is_timed(call) || std::ranges::binary_search(calls_, index)) continue;
      const double end_us = call.device_begin_us + call.device_duration_us;
      if (end_us <= times_.from_us || call.device_begin_us >= times_.until_us) continue;
      others_.push_back({call.device_begin_us, end_us, width_of(call)});
    }
    std::ranges::sort(others_, {}, &Other::begin_us);
  }

  // The share of the multiprocessors that a call's op fills; 1 if that is not known.
  double width_of(const TraceCall& call) const {
    if (call.kind == CallKind::copy || call.kind == CallKind::set) return 0;
    if (call.kind != CallKind::launch) return 1;
    const std::uint64_t threads = std::uint64_t{call.block[0]} * call.block[1] * call.block[2];
    const std::uint64_t blocks = std::uint64_t{call.grid[0]} * call.grid[1] * call.grid[2];
    return static_cast<double>(multiprocessors_of(device_, blocks, threads)) / device_.multiprocessors;
  }
  double width_of(std::uint32_t op) const {
    const OpCost& cost = analysis_.times.costs[op];
    if (cost.engine == Engine::none || is_bandwidth_bound(cost)) return 1;  // not known, or it does not matter
    if (cost.engine != Engine::multiprocessors) return 0;
    return static_cast<double>(cost.multiprocessors) / device_.multiprocessors;
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
    for (const Other& other : others_) {
      add(other.begin_us);
      add(other.end_us);
    }
    if (times_.next_call != kNone) add(submitted_us(times_.next_call));
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
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
      fill_ += width_of(op);
      last_begun_ = std::max(last_begun_, op);
    }
    for (; !running_.empty() && running_.begin()->first <= now; running_.erase(running_.begin()))
      fill_ -= width_of(running_.begin()->second);
    for (; next_other_ < others_.size() && others_[next_other_].begin_us <= now; ++next_other_) {
      running_others_.emplace(others_[next_other_].end_us, others_[next_other_].width);
      fill_ += others_[next_other_].width;
    }
    for (; !running_others_.empty() && running_others_.begin()->first <= now;
         running_others_.erase(running_others_.begin()))
      fill_ -= running_others_.begin()->second;
    if (running_.empty() && running_others_.empty()) fill_ = 0;  // without what rounding has left
  }

  void piece(double begin, double end) {
    Loss loss{.begin_us = begin, .end_us = end, .idle = running_.empty() && running_others_.empty()};
    if (loss.idle)
      idle(loss);
    else if (fill_ < kNarrow)
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
    if (!running_.empty()) loss.held_by = running_.rbegin()->second;  // the one that runs longest
    if (!waiting_.empty()) return waited(loss);
    if (next_ == by_begin_.size()) {
      loss.cause = LossCause::few_blocks;
      return losses_.push_back(loss);
    }
    loss.op = by_begin_[next_];
    blocked(loss);
    losses_.push_back(loss);
  }

  // For an op that could have run, but was not submitted, or was kept back by the program's order, or had yet to start.
  void waited(Loss loss) {
    loss.op = waiting_.begin()->second;
    if (waiting_.begin()->first > loss.begin_us) return host_.split(loss, calls_[loss.op], losses_);
    loss.cause = LossCause::start;
    constexpr int kLookedAt = 16;
    int left = kLookedAt;
    for (const auto& [submitted, op] : waiting_) {
      if (submitted > loss.begin_us || left-- == 0) break;
      const auto before = std::ranges::find_if(
          running_, [&, op = op](const auto& runs) { return analysis_.order.program->ordered(runs.second, op); });
      if (before == running_.end()) continue;
      loss.cause = LossCause::program_order;
      loss.op = op;
      loss.held_by = before->second;
      break;
    }
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
  struct Other {
    double begin_us = 0, end_us = 0, width = 0;
  };
  std::vector<Other> others_;                       // by when they begin
  std::vector<std::uint32_t> by_begin_, by_ready_;  // ops whose time is known
  std::vector<double> ready_us_, known_end_us_;
  std::vector<std::uint32_t> untimed_before_;
  // As of the piece that is looked at.
  double fill_ = 0;                                          // of the multiprocessors, by all that runs
  std::size_t next_other_ = 0;                               // into others_
  std::multiset<std::pair<double, double>> running_others_;  // by when they end, with their width
  std::size_t next_ = 0, ready_ = 0;                         // into by_begin_ and by_ready_
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
