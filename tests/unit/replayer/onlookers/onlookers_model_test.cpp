// Whatever programs do, against the definition of what is in order.
#include "replayer/onlookers/onlookers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/replayer/onlookers/onlookers_support.h"

namespace nimble {
namespace {

using namespace order;  // NOLINT(google-build-using-namespace)

// Threads of the program's that copy, launch kernels and graphs, and wait, each call taken by the driver at some moment
// between its two ends. Whenever two things may run at once by what the program and Nimble have waited for, and one of
// them is a graph in an order of ours, they touch nothing in common.
class World {
 public:
  // `stay`: graphs are often launched where they were before, and no stream waits for another by itself.
  World(unsigned seed, std::size_t threads, bool stay = false)
      : random_(seed), moves_(seed % 2 == 0), streams_(stay ? 3 : kStreams.size()), calls_(threads) {
    onlookers_.expect();
    for (std::size_t i = 0; i < graphs_.size(); ++i) {
      graphs_[i] = std::make_shared<Graph>(seed % 3 == 0 ? Onlookers::Work::Gated::no : Onlookers::Work::Gated::yes);
      // Whoever asks finds it through: all that the driver has had of it.
      graphs_[i]->ends_when_asked = [this, i] {
        for (const Op& op : ops_)
          if (op.relaxed && op.graph == static_cast<int>(i)) truth_.done.insert(op.number);
      };
      change_memory(i);
    }
  }

  // What went wrong; empty where nothing did.
  std::string run(int turns) {
    for (int turn = 0; turn < turns && wrong_.empty(); ++turn) advance(calls_[below(calls_.size())]);
    return wrong_;
  }
  int relaxed = 0, by_gate = 0, in_order = 0, waits = 0, needless = 0, unseen = 0;

 private:
  static constexpr int kCells = 6;
  enum class What { copy, kernel, launch, record, wait, sync_stream, sync_event };
  struct Op {
    int number = 0;
    std::vector<MemoryRange> memory;
    int graph = -1;
    bool relaxed = false;
  };
  struct Made {
    int stage = 0;  // none, on its way, to be taken, taken
    What what = What::copy;
    Stream on;
    Call call;
    std::size_t graph = 0;
    Op op;
    bool by_gate = false;
    std::optional<Onlookers::Launch> launch;
    Onlookers::Passage passage;
    Onlookers::Works met;
    CUevent event = nullptr;
    std::uint64_t address = 0;  // the parameter of a kernel
    void* parameters[1] = {};
  };

  std::size_t below(std::size_t n) { return random_() % n; }

  void change_memory(std::size_t i) {
    memory_[i].clear();
    for (int c = 0; c < kCells; ++c)
      if (below(kCells / 2) == 0) memory_[i].push_back(range(c, below(2) == 0));
    onlookers_.uses(graphs_[i], memory_[i], false, false);
  }

  void advance(Made& made) {
    switch (made.stage) {
      case 0:
        begin(made);
        made.stage = 1;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      case 1:
        for (const auto& graph : graphs_)
          if (made.met.has(graph.get()) && is_on_its_way(graph)) return;
        waits += !made.met.empty();
        onlookers_.wait_for(made.met);
        made.stage = 2;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      case 2:
        take(made);
        made.stage = 3;
        if (calls_.size() > 1) return;
        [[fallthrough]];
      default:
        if (made.by_gate) {
          Onlookers::leave_gate(*graphs_[made.graph]);
        } else if (made.launch) {
          onlookers_.begun(graphs_[made.graph], *made.launch, true, true);
        } else if (made.call.unseen != 0) {
          onlookers_.passed(made.call, CUDA_SUCCESS);
        } else {
          onlookers_.went(made.call, CUDA_SUCCESS, made.passage);
        }
        made = {};
    }
  }

  bool is_on_its_way(const std::shared_ptr<Graph>& graph) const {
    return std::ranges::any_of(calls_, [&](const Made& each) {
      return each.stage != 0 && (each.launch || each.by_gate) && graphs_[each.graph] == graph;
    });
  }

  void begin(Made& made) {
    constexpr What kWhats[] = {What::copy,   What::kernel, What::kernel, What::launch,      What::launch,
                               What::record, What::record, What::wait,   What::sync_stream, What::sync_event};
    made.what = kWhats[below(below(3) == 0 ? 10 : 8)];
    made.on = kStreams[below(streams_)];
    made.event = event(below(4));
    switch (made.what) {
      case What::copy: {
        const int from = static_cast<int>(below(kCells)), to = static_cast<int>(below(kCells));
        made.call = copy(made.on, from, to);
        made.op.memory = {range(from, false), range(to, true)};
        break;
      }
      case What::kernel: {
        const int there = static_cast<int>(below(kCells));
        made.address = cell(there) + below(kCell);
        made.parameters[0] = &made.address;
        made.call = copy(made.on, 0, 0);
        made.call.kind = CallKind::launch;
        made.call.launch.kernel_params = made.parameters;
        made.op.memory = {range(there, true)};
        break;
      }
      case What::launch:
        made.graph = below(graphs_.size());
        // The driver runs one launch of a graph after another.
        if (std::ranges::any_of(calls_, [&](const Made& each) {
              return &each != &made && each.what == What::launch && each.stage != 0 && each.graph == made.graph;
            }))
          return begin(made);
        if (moves_ && below(4) == 0) change_memory(made.graph);
        if (streams_ < kStreams.size() && below(2) == 0) made.on = kStreams[made.graph];
        made.op.memory = memory_[made.graph];
        made.op.graph = static_cast<int>(made.graph);
        made.by_gate = Onlookers::enter_gate(*graphs_[made.graph], made.on.ref);
        if (!made.by_gate) made.launch = onlookers_.begins(graphs_[made.graph], made.on.ref, {}, made.met);
        if (made.by_gate || made.launch) {
          made.op.relaxed = true;
          ++relaxed;
          by_gate += made.by_gate;
          return;
        }
        ++in_order;
        needless += calls_.size() == 1 && !is_met(made.op, made.on, true);
        made.call = copy(made.on, 0, 0);
        made.call.kind = CallKind::graph_launch;
        made.passage = onlookers_.comes(made.call, made.met, graphs_[made.graph]);
        return;
      case What::record:
        made.call = of_event(CallKind::event_record, made.on, made.event);
        break;
      case What::wait:
        made.call = of_event(CallKind::event_wait, made.on, made.event);
        break;
      case What::sync_stream:
        made.call = of_event(CallKind::stream_synchronize, made.on, nullptr);
        break;
      case What::sync_event:
        made.call = of_event(CallKind::event_synchronize, made.on, made.event);
        break;
    }
    if (onlookers_.passes_unseen(made.call)) {
      ++unseen;
      return;
    }
    made.passage = onlookers_.comes(made.call, made.met);
    needless += calls_.size() == 1 && !made.met.empty() && !is_met(made.op, made.on, false);
  }

  static bool conflict(const Op& one, const Op& other) {
    return std::ranges::any_of(one.memory, [&](const MemoryRange& a) {
      return std::ranges::any_of(other.memory, [&](const MemoryRange& b) { return nimble::conflict(a, b); });
    });
  }
  // Whether something that may still be running when the op comes touches what it touches, where one of the two is in
  // our order.
  bool is_met(const Op& op, const Stream& on, bool in_our_order) const {
    const auto before = truth_.before(on);
    return std::ranges::any_of(ops_, [&](const Op& other) {
      return (in_our_order || other.relaxed) && other.graph != (op.graph < 0 ? -2 : op.graph) &&
             !before.contains(other.number) && conflict(op, other);
    });
  }

  void take(Made& made) {
    switch (made.what) {
      case What::copy:
      case What::kernel:
      case What::launch: {
        if (is_met(made.op, made.on, made.op.relaxed))
          wrong_ = "op " + std::to_string(ops_.size()) + (made.op.relaxed ? ", a graph in our order," : "") +
                   " meets another";
        made.op.number = static_cast<int>(ops_.size());
        truth_.op(made.op.number, made.on);
        ops_.push_back(made.op);
        if (made.op.graph >= 0) {
          // Behind the launches before.
          for (const Op& other : ops_)
            if (other.graph == made.op.graph) truth_.joins(other.number, made.on);
        }
        return;
      }
      case What::record:
        return truth_.record(made.event, made.on);
      case What::wait:
        return truth_.wait(made.on, made.event);
      case What::sync_stream:
        return truth_.host_waits(made.on);
      case What::sync_event:
        return truth_.host_waits(made.event);
    }
  }

  inline static const std::vector<Stream> kStreams = {kA, kB, kC, kLegacy, kBlocking, kThreads};
  std::mt19937 random_;
  const bool moves_;           // whether the memory of graphs does
  const std::size_t streams_;  // how many are used
  Context context_;
  Onlookers onlookers_{context_};
  std::array<std::shared_ptr<Graph>, 2> graphs_;
  std::array<std::vector<MemoryRange>, 2> memory_;
  std::vector<Made> calls_;
  std::vector<Op> ops_;
  Truth truth_;
  std::string wrong_;
};

TEST(Onlookers, OfOneThreadNothingMeetsAndNothingWaitsInVain) {
  int relaxed = 0, in_order = 0, needless = 0, unseen = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    World world(seed, 1);
    ASSERT_EQ(world.run(400), "") << "seed " << seed;
    relaxed += world.relaxed;
    in_order += world.in_order;
    needless += world.needless;
    unseen += world.unseen;
  }
  EXPECT_GT(relaxed, 500);
  EXPECT_GT(in_order, 500);
  EXPECT_GT(unseen, 500);
  // What comes after a launch of the same graph is not known to.
  EXPECT_LT(needless, (relaxed + in_order) / 20);
}

TEST(Onlookers, OfSeveralThreadsNothingMeets) {
  int relaxed = 0, waits = 0, unseen = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    World world(seed, 2 + seed % 4);
    ASSERT_EQ(world.run(1500), "") << "seed " << seed;
    relaxed += world.relaxed;
    waits += world.waits;
    unseen += world.unseen;
  }
  EXPECT_GT(relaxed, 500);
  EXPECT_GT(waits, 100);
  EXPECT_GT(unseen, 500);
}

TEST(Onlookers, OfGraphsThatStayOnTheirStreamsNothingMeets) {
  int by_gate = 0, in_order = 0, waits = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    World world(seed, 1 + seed % 4, /*stay=*/true);
    ASSERT_EQ(world.run(1000), "") << "seed " << seed;
    by_gate += world.by_gate;
    in_order += world.in_order;
    waits += world.waits;
  }
  EXPECT_GT(by_gate, 500);
  EXPECT_GT(in_order, 500);
  EXPECT_GT(waits, 100);
}

}  // namespace
}  // namespace nimble
