#include "shim/rewrite/program_memory/released_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace nimble::shim {
namespace {

// A driver that knows of one graph: a node that sets memory at an address.
class FakeContext final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    return std::strcmp(name, "cuMemGetAddressRange_v2") == 0 ? reinterpret_cast<void*>(&range) : nullptr;
  }

 private:
  static CUresult CUDAAPI range(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
    *base = address;
    *size = 100;
    return CUDA_SUCCESS;
  }
  FunctionInfo function_;
};

CUdeviceptr g_named = 0;

GraphApi driver() {
  GraphApi api;
  api.cuGraphGetNodes_ = [](CUgraph, CUgraphNode* nodes, std::size_t* count) {
    if (nodes) *nodes = reinterpret_cast<CUgraphNode>(0x10);
    *count = 1;
    return CUDA_SUCCESS;
  };
  api.cuGraphGetEdges_ = [](CUgraph, CUgraphNode*, CUgraphNode*, std::size_t* count) {
    *count = 0;
    return CUDA_SUCCESS;
  };
  api.cuGraphNodeGetType_ = [](CUgraphNode, CUgraphNodeType* type) {
    *type = CU_GRAPH_NODE_TYPE_MEMSET;
    return CUDA_SUCCESS;
  };
  api.cuGraphMemsetNodeGetParams_ = [](CUgraphNode, CUDA_MEMSET_NODE_PARAMS* params) {
    *params = {};
    params->dst = g_named;
    params->elementSize = 4;
    params->width = params->height = 1;
    return CUDA_SUCCESS;
  };
  api.cuCtxGetCurrent_ = [](CUcontext* context) {
    *context = nullptr;
    return CUDA_SUCCESS;
  };
  return api;
}

class ReleasedMemoryTest : public testing::Test {
 protected:
  bool names(CUdeviceptr address) {
    g_named = address;
    const GraphApi api = driver();
    const ProgramGraph graph(api, graph_);
    EXPECT_EQ(graph.nodes().size(), 1u) << graph.why_not();
    return released_.is_named_by(graph);
  }

  CUgraph const graph_ = reinterpret_cast<CUgraph>(0x100);
  FakeContext context_;
  ReleasedMemory released_{context_};
};

TEST_F(ReleasedMemoryTest, WhatWentSinceTheCaptureBegan) {
  released_.goes(1000, 0);
  released_.began(7);
  released_.goes(2000, 0);
  released_.ended(7, graph_);
  released_.goes(3000, 10);
  for (const CUdeviceptr gone : {2000, 2099, 3009}) EXPECT_TRUE(names(gone)) << gone;
  for (const CUdeviceptr other : {1000, 1999, 2100, 3010}) EXPECT_FALSE(names(other)) << other;
}

TEST_F(ReleasedMemoryTest, WhatIsThereAgainIsNotGone) {
  released_.began(7);
  released_.ended(7, graph_);
  released_.goes(2000, 0);
  released_.goes(3000, 0);
  released_.came(2000, 99);
  EXPECT_TRUE(names(2000)) << "a part of it";
  released_.came(1900, 200);
  EXPECT_FALSE(names(2000));
  EXPECT_TRUE(names(3000));
}

TEST_F(ReleasedMemoryTest, PiecesThatLieInEachOther) {
  released_.began(7);
  released_.ended(7, graph_);
  released_.goes(2000, 1000);
  released_.goes(2100, 10);
  EXPECT_TRUE(names(2500));
}

TEST_F(ReleasedMemoryTest, ATooOldGraphIsUnknown) {
  released_.began(7);
  released_.ended(7, graph_);
  for (std::uint64_t i = 0; i < 5000; ++i) released_.goes(1'000'000 + i * 1000, 1);
  EXPECT_TRUE(names(8));
  released_.destroyed(graph_);
  EXPECT_FALSE(names(8)) << "it is another one";
}

}  // namespace
}  // namespace nimble::shim
