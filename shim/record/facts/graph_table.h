// What the program's executable graphs do: the accesses and kernels of their nodes, read from the driver when a graph
// is instantiated or changed. Used when recording, by the recorder alone; owned by it, thread-safe.
//
// A graph with a node that cannot be read, or one that is changed in a way that cannot be tracked, counts as unknown,
// with the reason.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble::shim {

struct GraphKernel {
  const FunctionInfo* function = nullptr;
  std::vector<std::uint8_t> params;  // packed
};

// A graph as it was at launch. The table shares it as long as the graph is unchanged, and so does each launch of it
// until it is written to the trace; the last share destroys it. Once handed out its content belongs to the trace
// writer, which empties it after writing it.
struct GraphInfo {
  bool known = false;
  std::string why;  // where not known
  std::vector<TraceAccess> accesses;
  std::vector<GraphKernel> kernels;
  std::uint32_t id = kNone;  // in the trace; set by the writer
  std::atomic<std::uint32_t> shares{1};

  struct Drop {
    void operator()(GraphInfo* info) const noexcept {
      if (info->shares.fetch_sub(1, std::memory_order_acq_rel) == 1) delete info;
    }
  };
};
using GraphShare = std::unique_ptr<GraphInfo, GraphInfo::Drop>;

class GraphTable {
 public:
  explicit GraphTable(CallContext& context) : context_(context) {}

  // The driver has answered a call that edits an executable graph; call.edit says how. The program's arguments are
  // still valid.
  void edited(const Call& call, bool succeeded);

  // What the graph does now; null if its creation was not seen.
  GraphShare of(CUgraphExec exec);

 private:
  struct Node {
    std::vector<TraceAccess> accesses;
    std::vector<GraphKernel> kernels;  // none or one
  };
  struct Graph {
    std::map<CUgraphNode, Node> nodes;
    std::string why;       // non-empty if something could not be read
    GraphShare published;  // null if it has changed since
  };

  // Adds the nodes of a graph and of the graphs inside it; returns the reason if one cannot be read.
  const char* walk(CUgraph graph, Graph& result, int depth);
  const char* read(CUgraphNode node, Graph& result, int depth);
  const char* read_kernel(CUgraphNode node, Node& result);
  const char* kernel(const CUDA_KERNEL_NODE_PARAMS& params, Node& node);
  template <class Function>
  Function driver(const char* name) {
    return reinterpret_cast<Function>(context_.driver_symbol(name));
  }

  CallContext& context_;
  std::mutex mutex_;  // guards all below; never held while the driver is called
  std::unordered_map<CUgraphExec, Graph> graphs_;
};

}  // namespace nimble::shim
