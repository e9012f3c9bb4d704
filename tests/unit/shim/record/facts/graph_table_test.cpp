// What is read of the program's graphs, from a driver that holds a few by hand.
#include "shim/record/facts/graph_table.h"

#include <gtest/gtest.h>

#include <cstring>

namespace nimble::shim {
namespace {

struct FakeNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUdeviceptr memory = 0;
  CUgraph child = nullptr;
  int updatable = 0;
};

using FakeGraph = std::vector<FakeNode*>;

FakeNode& node_of(CUgraphNode handle) { return *reinterpret_cast<FakeNode*>(handle); }

class FakeGraphs final : public CallContext {
 public:
  FakeGraphs() {
    kernel_.name = "k";
    kernel_.params = {{0, 8}, {8, 4}};
    kernel_.param_bytes = 12;
  }
  const FunctionInfo& function(CUfunction handle) override {
    return reinterpret_cast<std::uint64_t>(handle) == 1 ? kernel_ : unknown_;
  }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    const std::string_view asked = name;
    if (asked == missing) return nullptr;
    if (asked == "cuGraphGetNodes")
      return as_symbol(+[](CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
        const FakeGraph& all = *reinterpret_cast<FakeGraph*>(graph);
        for (std::size_t i = 0; nodes && i < all.size(); ++i) nodes[i] = reinterpret_cast<CUgraphNode>(all[i]);
        *count = all.size();
        return CUDA_SUCCESS;
      });
    if (asked == "cuGraphNodeGetType")
      return as_symbol(+[](CUgraphNode node, CUgraphNodeType* out) { return *out = node_of(node).type, CUDA_SUCCESS; });
    if (asked == "cuGraphKernelNodeGetParams_v2")
      return as_symbol(
          +[](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) { return *out = node_of(node).kernel, CUDA_SUCCESS; });
    if (asked == "cuGraphKernelNodeGetAttribute")
      return as_symbol(+[](CUgraphNode node, CUkernelNodeAttrID, CUkernelNodeAttrValue* out) {
        return out->deviceUpdatableKernelNode.deviceUpdatable = node_of(node).updatable, CUDA_SUCCESS;
      });
    if (asked == "cuGraphMemcpyNodeGetParams")
      return as_symbol(+[](CUgraphNode node, CUDA_MEMCPY3D* out) { return *out = node_of(node).copy, CUDA_SUCCESS; });
    if (asked == "cuGraphMemsetNodeGetParams")
      return as_symbol(
          +[](CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) { return *out = node_of(node).set, CUDA_SUCCESS; });
    if (asked == "cuGraphMemAllocNodeGetParams")
      return as_symbol(+[](CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
        return out->dptr = node_of(node).memory, CUDA_SUCCESS;
      });
    if (asked == "cuGraphMemFreeNodeGetParams")
      return as_symbol(+[](CUgraphNode node, CUdeviceptr* out) { return *out = node_of(node).memory, CUDA_SUCCESS; });
    if (asked == "cuGraphChildGraphNodeGetGraph")
      return as_symbol(+[](CUgraphNode node, CUgraph* out) { return *out = node_of(node).child, CUDA_SUCCESS; });
    return nullptr;
  }

  std::string missing;  // a function that the driver lacks

 private:
  template <class... Args>
  static void* as_symbol(CUresult (*function)(Args...)) {
    return reinterpret_cast<void*>(function);
  }
  FunctionInfo kernel_, unknown_;
};

class GraphTableTest : public testing::Test {
 protected:
  static inline const CUgraphExec kExec = reinterpret_cast<CUgraphExec>(0x40);

  GraphTableTest() {
    launch_.type = CU_GRAPH_NODE_TYPE_KERNEL;
    launch_.kernel.func = reinterpret_cast<CUfunction>(1);
    launch_.kernel.kernelParams = arguments_;
    copy_.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    copy_.copy = flat(1000, 2000, 64);
    set_.type = CU_GRAPH_NODE_TYPE_MEMSET;
    set_.set.dst = 3000;
    set_.set.elementSize = 4;
    set_.set.width = 8;
    set_.set.height = 3;
    set_.set.pitch = 100;
  }

  static CUDA_MEMCPY3D flat(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = src;
    copy.dstDevice = dst;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }
  void edit(GraphEdit edit, const void* first = nullptr, const void* second = nullptr, bool succeeded = true) {
    Call call;
    call.graph.edit = edit;
    call.graph.exec = kExec;
    call.arguments = {first, second};
    table_.edited(call, succeeded);
  }
  void instantiate(FakeGraph& graph) { edit(GraphEdit::instantiate, &graph); }
  // "3000+232w k(64)": what the graph does, as it is told now; "?" and why where it is not known.
  std::string text() {
    const GraphShare info = table_.of(kExec);
    if (!info) return "";
    if (!info->known) return "? " + info->why;
    std::string result;
    for (const TraceAccess& access : info->accesses) {
      result += std::to_string(access.address);
      result += '+';
      result += std::to_string(access.bytes);
      result += access.reads ? "r" : "";
      result += access.writes ? "w " : " ";
    }
    for (const GraphKernel& kernel : info->kernels) {
      std::uint64_t word = 0;
      std::memcpy(&word, kernel.params.data(), sizeof word);
      result += kernel.function->name;
      result += '(';
      result += std::to_string(word);
      result += ") ";
    }
    return result;
  }

  FakeGraphs driver_;
  GraphTable table_{driver_};
  std::uint64_t pointer_ = 64;
  std::uint32_t number_ = 7;
  void* arguments_[2] = {&pointer_, &number_};
  FakeNode launch_, copy_, set_;
};

TEST_F(GraphTableTest, ReadsKernelsCopiesAndSets) {
  FakeGraph graph{&launch_};
  instantiate(graph);
  EXPECT_EQ(text(), "k(64) ");
  graph = {&copy_};
  instantiate(graph);
  EXPECT_EQ(text(), "2000+64r 1000+64w ");
  graph = {&set_};
  instantiate(graph);
  EXPECT_EQ(text(), "3000+232w ");
  FakeNode empty;
  graph = {&empty};
  instantiate(graph);
  EXPECT_EQ(text(), "");
  EXPECT_TRUE(table_.of(kExec)->known);
  EXPECT_EQ(table_.of(reinterpret_cast<CUgraphExec>(0x99)), nullptr);
}

TEST_F(GraphTableTest, KernelsByHandleAndByPackedBuffer) {
  launch_.kernel.func = nullptr;
  launch_.kernel.kern = reinterpret_cast<CUkernel>(1);
  struct __attribute__((packed)) {
    std::uint64_t pointer = 128;
    std::uint32_t number = 1;
  } buffer;
  std::size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  launch_.kernel.kernelParams = nullptr;
  launch_.kernel.extra = extra;
  FakeGraph graph{&launch_};
  instantiate(graph);
  EXPECT_EQ(text(), "k(128) ");
}

TEST_F(GraphTableTest, GraphsInsideGraphsAndTheirMemory) {
  FakeNode child, alloc, release;
  FakeGraph inner{&set_, &alloc, &release};
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.child = reinterpret_cast<CUgraph>(&inner);
  alloc.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  alloc.memory = 4096;
  release.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  release.memory = 8192;
  FakeGraph graph{&child};
  instantiate(graph);
  const std::string found = text();
  EXPECT_NE(found.find("3000+232w "), std::string::npos) << found;
  EXPECT_NE(found.find("4096+0rw "), std::string::npos) << found;
  EXPECT_NE(found.find("8192+0rw "), std::string::npos) << found;
  inner.push_back(&child);  // without end
  instantiate(graph);
  EXPECT_EQ(text(), "? graphs are nested too deep in it");
}

TEST_F(GraphTableTest, WhateverCannotBeReadMakesAllUnknown) {
  FakeGraph graph{&copy_, &launch_};
  const auto why = [&] {
    instantiate(graph);
    return text();
  };
  for (const CUgraphNodeType type :
       {CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        CU_GRAPH_NODE_TYPE_CONDITIONAL, static_cast<CUgraphNodeType>(15)}) {
    launch_.type = type;
    EXPECT_EQ(why().substr(0, 2), "? ") << type;
  }
  launch_.type = CU_GRAPH_NODE_TYPE_KERNEL;
  launch_.updatable = 1;
  EXPECT_EQ(why(), "? it holds a kernel that the device may change");
  launch_.updatable = 0;
  launch_.kernel.func = reinterpret_cast<CUfunction>(2);
  EXPECT_EQ(why(), "? it holds a kernel whose parameters are unknown");
  launch_.kernel.func = reinterpret_cast<CUfunction>(1);
  copy_.copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(why(), "? it copies from or to an array");
  copy_.copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  driver_.missing = "cuGraphMemcpyNodeGetParams";
  EXPECT_EQ(why(), "? the driver does not report what its nodes do");
  driver_.missing = "";
  EXPECT_EQ(why(), "2000+64r 1000+64w k(64) ");
}

TEST_F(GraphTableTest, FollowsChangesOfKernelsCopiesAndSets) {
  FakeGraph graph{&launch_, &copy_, &set_};
  instantiate(graph);
  const GraphShare before = table_.of(kExec);
  EXPECT_EQ(table_.of(kExec), before) << "told once, as long as nothing changes";
  pointer_ = 256;
  edit(GraphEdit::set_kernel, &launch_, &launch_.kernel);
  EXPECT_NE(table_.of(kExec), before);
  EXPECT_NE(text().find("k(256)"), std::string::npos) << text();
  const CUDA_MEMCPY3D other = flat(5000, 6000, 16);
  edit(GraphEdit::set_copy, &copy_, &other);
  EXPECT_NE(text().find("6000+16r 5000+16w "), std::string::npos) << text();
  EXPECT_EQ(text().find("1000+64w"), std::string::npos) << text();
  CUDA_MEMSET_NODE_PARAMS smaller = set_.set;
  smaller.height = 1;
  edit(GraphEdit::set_set, &set_, &smaller);
  EXPECT_NE(text().find("3000+32w "), std::string::npos) << text();
  // What the driver refused has changed nothing.
  edit(GraphEdit::set_copy, &copy_, &copy_.copy, false);
  EXPECT_NE(text().find("5000+16w "), std::string::npos) << text();
}

TEST_F(GraphTableTest, OtherChangesMakeItUnknown) {
  FakeGraph graph{&set_}, other{&copy_};
  instantiate(graph);
  edit(GraphEdit::set_other, &set_);
  EXPECT_EQ(text().substr(0, 2), "? ");
  // Made anew, all is known again; and so after an update as a whole.
  instantiate(graph);
  EXPECT_EQ(text(), "3000+232w ");
  edit(GraphEdit::update, &other);
  EXPECT_EQ(text(), "2000+64r 1000+64w ");
  edit(GraphEdit::update, &graph, nullptr, false);
  EXPECT_EQ(text().substr(0, 2), "? ");
  instantiate(graph);
  edit(GraphEdit::set_copy, &copy_, &copy_.copy);
  EXPECT_EQ(text(), "? a node was changed that it is not known to have");
  edit(GraphEdit::destroy);
  EXPECT_EQ(table_.of(kExec), nullptr);
}

}  // namespace
}  // namespace nimble::shim
