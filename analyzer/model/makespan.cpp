#include "analyzer/model/makespan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <tuple>
#include <vector>

namespace nimble::analyzer {
namespace {

constexpr std::size_t kEngines = 5;
constexpr int kMostWaves = 8;      // more are merged: finer steps add nothing
constexpr double kNothing = 1e-9;  // microseconds: what rounding may leave of an op

class Simulation {
 public:
  Simulation(const DeviceModel& device, const Dag& dag, std::span<const OpCost> costs,
             std::span<const std::uint32_t> order, std::span<const std::uint8_t> priority, Timeline& timeline)
      : device_(device), dag_(dag), costs_(costs), times_(timeline), ops_(dag.nodes()), rank_(dag.nodes()) {
    free_.fill(1);
    free_[static_cast<std::size_t>(Engine::none)] = std::numeric_limits<int>::max();
    free_[static_cast<std::size_t>(Engine::multiprocessors)] = device.multiprocessors;
    for (std::uint32_t i = 0; i < order.size(); ++i) rank_[order[i]] = i;
    for (std::uint32_t node = 0; node < dag.nodes(); ++node) {
      ops_[node].missing = static_cast<std::uint32_t>(dag.predecessors(node).size());
      ops_[node].priority = priority.empty() ? 0 : priority[node];
      if (ops_[node].missing == 0) coming_.push({0, rank_[node], node});
    }
    timeline.begin_us.assign(dag.nodes(), 0);
    timeline.end_us.assign(dag.nodes(), 0);
  }

  double run() {
    for (;;) {
      begin_parts();
      if (coming_.empty() && parts_.empty()) return now_;
      advance();
    }
  }

 private:
  struct Op {
    std::uint32_t missing = 0;  // predecessors that have not ended
    int priority = 0;
    double ready_us = 0;
    int waiting = 0;  // waves on one multiprocessor that have not begun ...
    int running = 0;  // ... and multiprocessors that run one
  };
  struct Ready {
    double ready_us;
    std::uint32_t rank, node;
    bool dispatched = false;
    bool operator<(const Ready& other) const {
      return std::tuple(other.ready_us, other.rank) < std::tuple(ready_us, rank);
    }
  };
  struct Waiting {
    int priority;
    double ready_us;
    std::uint32_t rank, node;
    bool operator<(const Waiting& other) const {
      return std::tuple(priority, other.ready_us, other.rank) < std::tuple(other.priority, ready_us, rank);
    }
  };
  // Waves of one op that started together.
  struct Part {
    std::uint32_t node;
    int width;  // multiprocessors
    double left_us;
    double bandwidth;
  };

  std::size_t engine(std::uint32_t node) const { return static_cast<std::size_t>(costs_[node].engine); }
  int width(std::uint32_t node) const {
    return engine(node) == static_cast<std::size_t>(Engine::multiprocessors)
               ? std::clamp(costs_[node].multiprocessors, 1, device_.multiprocessors)
               : 1;
  }
  int waves(std::uint32_t node) const { return std::clamp(costs_[node].waves, 1, kMostWaves); }

  void begin_parts() {
    while (!coming_.empty() && coming_.top().ready_us <= now_) {
      Ready next = coming_.top();
      std::uint32_t node = next.node;
      coming_.pop();
      if (!next.dispatched) {
        next.dispatched = true;
        double turn_us = std::max(next.ready_us, dispatcher_free_us_);
        dispatcher_free_us_ = turn_us + device_.graph_dispatch_us;
        if (turn_us > now_) {
          next.ready_us = turn_us;
          coming_.push(next);
          continue;
        }
      }
      ops_[node].ready_us = next.ready_us;
      ops_[node].waiting = width(node) * waves(node);
      waiting_[engine(node)].push({ops_[node].priority, ops_[node].ready_us, rank_[node], node});
    }
    for (std::size_t e = 0; e < kEngines; ++e)
      while (!waiting_[e].empty() && free_[e] > 0) {
        Waiting top = waiting_[e].top();
        Op& op = ops_[top.node];
        if (op.waiting == width(top.node) * waves(top.node)) times_.begin_us[top.node] = now_;
        int begun = std::min({free_[e], op.waiting, width(top.node)});
        const OpCost& cost = costs_[top.node];
        parts_.push_back({top.node, begun, cost.device_us / waves(top.node), cost.bandwidth * begun / width(top.node)});
        if (e != static_cast<std::size_t>(Engine::none)) free_[e] -= begun;
        op.waiting -= begun;
        op.running += begun;
        if (op.waiting == 0) waiting_[e].pop();
      }
  }

  // What each may draw of the memory's bandwidth if all together want more than there is: the same share for all; what
  // some leave unused goes to the others.
  double even_share() {
    wanted_.clear();
    double sum = 0;
    for (const Part& part : parts_)
      if (part.bandwidth > 0) {
        wanted_.push_back(part.bandwidth);
        sum += part.bandwidth;
      }
    if (sum <= 1) return 1;
    std::sort(wanted_.begin(), wanted_.end());
    double left = 1;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      double share = left / static_cast<double>(wanted_.size() - i);
      if (wanted_[i] > share) return share;
      left -= wanted_[i];
    }
    return 1;  // it was more only because of rounding
  }

  // Advances to the next moment at which an op becomes ready or a part ends.
  void advance() {
    double share = even_share();
    auto slowed = [&](const Part& part) { return std::max(1.0, part.bandwidth / share); };
    double step = std::numeric_limits<double>::infinity();
    for (const Part& part : parts_) step = std::min(step, part.left_us * slowed(part));
    double then = now_ + step;
    if (!coming_.empty() && coming_.top().ready_us <= then) {
      then = coming_.top().ready_us;
      step = then - now_;
    }
    now_ = then;
    for (std::size_t i = 0; i < parts_.size();) {
      parts_[i].left_us -= step / slowed(parts_[i]);
      if (parts_[i].left_us > kNothing) {
        ++i;
        continue;
      }
      Part ended = parts_[i];
      parts_[i] = parts_.back();
      parts_.pop_back();
      end(ended);
    }
  }

  void end(const Part& part) {
    Op& op = ops_[part.node];
    if (costs_[part.node].engine != Engine::none) free_[engine(part.node)] += part.width;
    op.running -= part.width;
    if (op.running > 0 || op.waiting > 0) return;
    times_.end_us[part.node] = now_;
    for (std::uint32_t to : dag_.successors(part.node))
      if (--ops_[to].missing == 0) coming_.push({now_ + device_.graph_edge_us, rank_[to], to});
  }

  const DeviceModel& device_;
  const Dag& dag_;
  std::span<const OpCost> costs_;
  Timeline& times_;
  std::vector<Op> ops_;
  std::vector<std::uint32_t> rank_;
  std::priority_queue<Ready> coming_;
  std::array<std::priority_queue<Waiting>, kEngines> waiting_;
  std::array<int, kEngines> free_{};
  std::vector<Part> parts_;
  std::vector<double> wanted_;
  double now_ = 0, dispatcher_free_us_ = 0;
};

}  // namespace

double predict_makespan(const DeviceModel& device, const Dag& dag, std::span<const OpCost> costs,
                        std::span<const std::uint32_t> order, std::span<const std::uint8_t> priority,
                        Timeline& timeline) {
  return Simulation(device, dag, costs, order, priority, timeline).run();
}

double predict_makespan(const DeviceModel& device, const Dag& dag, std::span<const OpCost> costs,
                        std::span<const std::uint32_t> order, std::span<const std::uint8_t> priority) {
  Timeline timeline;
  return predict_makespan(device, dag, costs, order, priority, timeline);
}

}  // namespace nimble::analyzer
