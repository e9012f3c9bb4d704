#include "analyzer/model/makespan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <queue>
#include <tuple>
#include <vector>

namespace nimble::analyzer {
namespace {

constexpr int kMostWaves = 8;           // more are merged: finer steps add nothing
constexpr double kNothing = 1e-9;       // microseconds: what rounding may leave of an op
constexpr double kBandwidth = 1 << 30;  // all of the memory's, in whole units, so that sums are exact

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
    double end_us;  // at the present pace
    double bandwidth;
    double pace;  // how many times as long it takes now as alone
    std::uint32_t node;
    int width;  // multiprocessors
    // For a heap with the part that ends first at its front.
    bool operator<(const Part& other) const { return end_us > other.end_us; }
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
        begin(top.node, begun, cost.device_us / waves(top.node), cost.bandwidth * begun / width(top.node));
        if (e != static_cast<std::size_t>(Engine::none)) free_[e] -= begun;
        op.waiting -= begun;
        op.running += begun;
        if (op.waiting == 0) waiting_[e].pop();
      }
  }

  static std::int64_t counted(const Part& part) { return static_cast<std::int64_t>(part.bandwidth * kBandwidth); }

  void begin(std::uint32_t node, int width, double time_us, double bandwidth) {
    const double pace = std::max(1.0, bandwidth / share_);
    parts_.push_back({now_ + time_us * pace, bandwidth, pace, node, width});
    wanted_ += counted(parts_.back());
    std::push_heap(parts_.begin(), parts_.end());
  }

  // What each may draw of the memory's bandwidth if all together want more than there is: the same share for all; what
  // some leave unused goes to the others, round by round until the share no longer grows.
  double even_share() const {
    if (static_cast<double>(wanted_) <= kBandwidth) return 1;
    double share = 0;
    for (double next = 1 / static_cast<double>(parts_.size()); next > share;) {
      share = next;
      double left = 1;
      std::size_t wanting = 0;
      for (const Part& part : parts_) part.bandwidth > share ? void(++wanting) : void(left -= part.bandwidth);
      if (wanting == 0) return 1;  // they want more only because of rounding
      next = left / static_cast<double>(wanting);
    }
    return share;
  }

  // Lets each part run at the pace that its share of the bandwidth allows.
  void share_bandwidth() {
    const double share = even_share();
    if (share == share_) return;
    share_ = share;
    for (Part& part : parts_) {
      const double pace = std::max(1.0, part.bandwidth / share);
      if (pace == part.pace) continue;
      part.end_us = now_ + (part.end_us - now_) / part.pace * pace;
      part.pace = pace;
    }
    std::make_heap(parts_.begin(), parts_.end());
  }

  // Advances to the next moment at which an op becomes ready or a part ends.
  void advance() {
    share_bandwidth();
    double then = std::numeric_limits<double>::infinity();
    if (!parts_.empty()) then = std::max(now_, parts_.front().end_us);
    if (!coming_.empty()) then = std::min(then, coming_.top().ready_us);
    now_ = then;
    while (!parts_.empty() && parts_.front().end_us <= now_ + kNothing) {
      std::pop_heap(parts_.begin(), parts_.end());
      const Part ended = parts_.back();
      parts_.pop_back();
      wanted_ -= counted(ended);
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
  std::vector<Part> parts_;  // a heap
  std::int64_t wanted_ = 0;  // the bandwidth that they want together
  double share_ = 1;         // the most that any of them gets
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
