#include "shim/rewrite/graph/rewritten_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nimble::shim {
namespace {

using Edge = std::pair<std::uint32_t, std::uint32_t>;

// A driver that has one graph, a chain of kernels, and at most one clone of it. Node i of the graph has the handle i +
// 1, that of the clone kClone + i.
class Driver {
 public:
  static constexpr std::uintptr_t kClone = 100;
  static constexpr int kLeast = 0, kGreatest = -3;

  explicit Driver(std::vector<int> priorities) : priority(std::move(priorities)) {
    instance_ = this;
    for (std::uint32_t i = 1; i < priority.size(); ++i) edges_.push_back({i - 1, i});
  }
  ~Driver() { instance_ = nullptr; }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  GraphApi api();

  std::vector<int> priority;            // of each kernel, as it was captured
  std::vector<std::array<int, 2>> set;  // what nodes of the clone were given: node and priority
  std::set<Edge> clone_edges;
  std::vector<unsigned long long> flags;  // of each attempt to make it executable
  unsigned long long refuses = 0;         // flags with one of these are refused; all are where it is ~0
  std::string refuses_call;
  int clones = 0, executables = 0;

 private:
  static CUresult says(const char* call) {
    return instance_->refuses_call == call ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }
  static std::uintptr_t number(CUgraphNode node) { return reinterpret_cast<std::uintptr_t>(node); }
  static std::uint32_t index(CUgraphNode node) {
    return static_cast<std::uint32_t>(number(node) - (number(node) >= kClone ? kClone : 1));
  }
  static CUgraphNode handle(std::uintptr_t value) { return reinterpret_cast<CUgraphNode>(value); }
  static bool is_clone(CUgraph graph) { return reinterpret_cast<std::uintptr_t>(graph) == kClone; }

  static inline Driver* instance_ = nullptr;
  std::vector<Edge> edges_;
};

GraphApi Driver::api() {
  GraphApi api;
  api.cuGraphGetNodes_ = [](CUgraph, CUgraphNode* nodes, std::size_t* count) {
    *count = instance_->priority.size();
    for (std::size_t i = 0; nodes && i < *count; ++i) nodes[i] = handle(i + 1);
    return CUDA_SUCCESS;
  };
  api.cuGraphGetEdges_ = [](CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
    const std::uintptr_t first = is_clone(graph) ? kClone : 1;
    *count = instance_->edges_.size();
    for (std::size_t i = 0; from && i < *count; ++i) {
      from[i] = handle(instance_->edges_[i].first + first);
      to[i] = handle(instance_->edges_[i].second + first);
    }
    return CUDA_SUCCESS;
  };
  api.cuGraphNodeGetType_ = [](CUgraphNode, CUgraphNodeType* type) {
    *type = CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
  };
  api.cuGraphKernelNodeGetParams_v2_ = [](CUgraphNode, CUDA_KERNEL_NODE_PARAMS* params) {
    params->func = reinterpret_cast<CUfunction>(0x10);
    return CUDA_SUCCESS;
  };
  api.cuGraphKernelNodeGetAttribute_ = [](CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
    if (id != CU_KERNEL_NODE_ATTRIBUTE_PRIORITY) return CUDA_ERROR_NOT_SUPPORTED;
    value->priority = instance_->priority[index(node)];
    return says("get");
  };
  api.cuGraphKernelNodeSetAttribute_ = [](CUgraphNode node, CUkernelNodeAttrID, const CUkernelNodeAttrValue* value) {
    EXPECT_GE(number(node), kClone) << "the program's own graph stays as it is";
    instance_->set.push_back({static_cast<int>(index(node)), value->priority});
    return says("set");
  };
  api.cuGraphClone_ = [](CUgraph* out, CUgraph) {
    *out = reinterpret_cast<CUgraph>(kClone);
    for (const Edge& edge : instance_->edges_) instance_->clone_edges.insert(edge);
    return ++instance_->clones, says("clone");
  };
  api.cuGraphNodeFindInClone_ = [](CUgraphNode* out, CUgraphNode node, CUgraph) {
    *out = handle(kClone + index(node));
    return says("find");
  };
  api.cuGraphRemoveDependencies_ = [](CUgraph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) instance_->clone_edges.erase({index(from[i]), index(to[i])});
    return says("remove");
  };
  api.cuGraphAddDependencies_ = [](CUgraph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) instance_->clone_edges.insert({index(from[i]), index(to[i])});
    return says("add");
  };
  api.cuGraphDestroy_ = [](CUgraph graph) {
    EXPECT_TRUE(is_clone(graph));
    return --instance_->clones, CUDA_SUCCESS;
  };
  api.cuGraphInstantiateWithFlags_ = [](CUgraphExec* out, CUgraph, unsigned long long given) {
    instance_->flags.push_back(given);
    if (instance_->refuses == ~0ull || (instance_->refuses & given)) return CUDA_ERROR_INVALID_VALUE;
    *out = reinterpret_cast<CUgraphExec>(0x20);
    return ++instance_->executables, CUDA_SUCCESS;
  };
  api.cuGraphExecDestroy_ = [](CUgraphExec) { return --instance_->executables, CUDA_SUCCESS; };
  api.cuCtxGetCurrent_ = [](CUcontext* out) {
    *out = reinterpret_cast<CUcontext>(0x8);
    return CUDA_SUCCESS;
  };
  api.cuCtxGetStreamPriorityRange_ = [](int* least, int* greatest) {
    *least = kLeast;
    *greatest = kGreatest;
    return says("range");
  };
  return api;
}

constexpr unsigned long long kOwn = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

class RewrittenGraphTest : public testing::Test {
 protected:
  // Of nodes with these priorities in the program's graph, of which the schedule raises some by so much.
  std::string build(const std::vector<std::uint32_t>& raised, bool own_priorities, std::vector<int> captured = {}) {
    rewritten_.reset();
    driver_.emplace(captured.empty() ? std::vector<int>(raised.size(), -1) : std::move(captured));
    driver_->refuses = refuses_;
    driver_->refuses_call = refuses_call_;
    api_ = driver_->api();
    const ProgramGraph graph(api_, reinterpret_cast<CUgraph>(0x40));
    EXPECT_EQ(graph.why_not(), "");
    Schedule schedule;
    ScheduleSegment& segment = schedule.segments.emplace_back();
    std::vector<std::uint32_t> node;
    for (std::uint32_t i = 0; i < raised.size(); ++i) {
      schedule.ops.emplace_back().priority = raised[i];
      segment.order.push_back(i);
      node.push_back(i);
      if (i > 0) segment.edges.push_back({0, i});
    }
    rewritten_.emplace(api_);
    std::string why = rewritten_->build(graph, schedule, node, own_priorities);
    EXPECT_EQ(driver_->clones, 0) << "nothing of it stays but what is launched";
    EXPECT_EQ(driver_->executables, why.empty() ? 1 : 0);
    return why;
  }

  unsigned long long refuses_ = 0;
  std::string refuses_call_;
  GraphApi api_;
  std::optional<Driver> driver_;
  std::optional<RewrittenGraph> rewritten_;
};

TEST_F(RewrittenGraphTest, HasTheEdgesOfTheScheduleAlone) {
  EXPECT_EQ(build({0, 0, 0}, false), "");
  EXPECT_EQ(driver_->clone_edges, (std::set<Edge>{{0, 1}, {0, 2}}));
}

// What heeds the priorities of nodes is not what heeds that of the launch's stream.
TEST_F(RewrittenGraphTest, HeedsThePrioritiesThatTheProgramsGraphHeeds) {
  for (const bool own : {false, true}) {
    EXPECT_EQ(build({0, 0, 0}, own), "");
    EXPECT_EQ(driver_->flags, std::vector<unsigned long long>{own ? kOwn : 0});
    EXPECT_TRUE(driver_->set.empty());
    EXPECT_EQ(rewritten_->priority(), std::nullopt) << "it may be launched on any stream";
  }
}

TEST_F(RewrittenGraphTest, RaisesNodesAboveTheOthers) {
  EXPECT_EQ(build({0, 1, 5}, true), "");
  EXPECT_EQ(driver_->set, (std::vector<std::array<int, 2>>{{1, -2}, {2, Driver::kGreatest}}));
  EXPECT_EQ(driver_->flags, std::vector<unsigned long long>{kOwn});
  EXPECT_EQ(rewritten_->priority(), std::nullopt);
}

// The others run at what they were captured with: right where the launch's stream has that.
TEST_F(RewrittenGraphTest, WhereTheStreamsPriorityCountsItIsForStreamsOfTheOneThatWasCaptured) {
  EXPECT_EQ(build({0, 1, 0}, false), "");
  EXPECT_EQ(driver_->set, (std::vector<std::array<int, 2>>{{1, -2}}));
  EXPECT_EQ(driver_->flags, std::vector<unsigned long long>{kOwn});
  EXPECT_EQ(rewritten_->priority(), -1);
  EXPECT_EQ(build({0, 1, 0}, false, {-1, 0, -1}), "") << "captured on streams of several";
  EXPECT_TRUE(driver_->set.empty());
  EXPECT_EQ(driver_->flags, std::vector<unsigned long long>{0});
  EXPECT_EQ(rewritten_->priority(), std::nullopt);
}

TEST_F(RewrittenGraphTest, WithoutPrioritiesWhereTheDriverHasNone) {
  refuses_ = kOwn;
  for (const bool own : {false, true}) {
    EXPECT_EQ(build({0, 1, 0}, own), "");
    EXPECT_EQ(driver_->flags, (std::vector<unsigned long long>{kOwn, 0}));
    EXPECT_EQ(rewritten_->priority(), std::nullopt);
  }
  refuses_ = 0;
  for (const char* call : {"get", "set", "range"}) {
    refuses_call_ = call;
    EXPECT_EQ(build({0, 1, 0}, false), "") << call;
    EXPECT_EQ(driver_->flags, std::vector<unsigned long long>{0}) << call;
    EXPECT_EQ(rewritten_->priority(), std::nullopt) << call;
  }
}

TEST_F(RewrittenGraphTest, SaysWhatTheDriverRefusesAndLeavesNothing) {
  refuses_ = ~0ull;
  EXPECT_EQ(build({0, 0}, false), "the driver refuses to make it executable (CUDA_ERROR_INVALID_VALUE)");
  EXPECT_EQ(driver_->flags.size(), 1u) << "the same once more would be refused again";
  EXPECT_EQ(build({0, 1}, false), "the driver refuses to make it executable (CUDA_ERROR_INVALID_VALUE)");
  EXPECT_EQ(driver_->flags.size(), 2u);
  refuses_ = 0;
  for (const auto& [call, text] : {std::pair("remove", "to remove its edges"), std::pair("find", "to find a node"),
                                   std::pair("add", "other edges")}) {
    refuses_call_ = call;
    EXPECT_EQ(build({0, 0}, false), std::string("the driver refuses ") + text + " (CUDA_ERROR_NOT_SUPPORTED)");
    EXPECT_TRUE(driver_->flags.empty());
  }
}

}  // namespace
}  // namespace nimble::shim
