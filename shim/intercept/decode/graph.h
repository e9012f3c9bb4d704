// The program's own graphs: calls that change what an executable graph does. For the recorder
// (shim/record/facts/graph_table.h); the replayer does not need them, since only the program launches such graphs.
#pragma once

#include "shim/intercept/decode/memory.h"

namespace nimble::shim::decode {

inline void edits(Call& call, GraphEdit edit, CUgraphExec exec, const void* first = nullptr,
                  const void* second = nullptr) {
  call.graph.edit = edit;
  call.graph.exec = exec;
  call.arguments = {first, second};
}

// A graph becomes executable: its nodes are read when recording.
struct GraphInstantiate {
  template <class... Rest>
  static void before(Entry, Call& call, CUgraphExec*, CUgraph graph, Rest...) {
    edits(call, GraphEdit::instantiate, nullptr, graph);
    call.graph.handle = graph;
  }
  template <class... Rest>
  static void after(Call& call, CUgraphExec* exec, CUgraph, Rest...) {
    call.graph.exec = *exec;
  }
};

// A graph becomes executable, and may be uploaded in stream order: its nodes are read when recording.
struct GraphInstantiateParams {
  static void before(Entry entry, Call& call, CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
    GraphInstantiate::before(entry, call, exec, graph);
  }
  static void after(Call& call, CUgraphExec* exec, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*) { call.graph.exec = *exec; }
};

// An executable graph is updated from another graph: its nodes are read again when recording.
struct GraphUpdate {
  template <class... Rest>
  static void before(Entry, Call& call, CUgraphExec exec, CUgraph graph, Rest...) {
    edits(call, GraphEdit::update, exec, graph);
    call.graph.handle = graph;
  }
};

// A graph ends; its executable graphs live on.
struct GraphEnd {
  static void before(Entry, Call& call, CUgraph graph) {
    edits(call, GraphEdit::end, nullptr);
    call.graph.handle = graph;
  }
};

// A graph's nodes are also added to another (as a child, or by cloning).
struct GraphShare {
  static void before(Entry, Call& call, CUgraph*, CUgraph original) { shares(call, original); }
  static void before(Entry, Call& call, CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph child) {
    shares(call, child);
  }

 private:
  static void shares(Call& call, CUgraph graph) {
    edits(call, GraphEdit::share, nullptr);
    call.graph.handle = graph;
  }
};

// An executable graph is changed or ends. Kernels, copies and sets that change are read again when recording; after any
// other change its launches are ordered with everything.
struct GraphChange {
  template <class... Rest>
  static void before(Entry, Call& call, CUgraphExec exec, Rest...) {
    edits(call, sizeof...(Rest) == 0 ? GraphEdit::destroy : GraphEdit::set_other, exec);
  }
  static void before(Entry, Call& call, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
    edits(call, GraphEdit::set_kernel, exec, node, params);
  }
  static void before(Entry, Call& call, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params, CUcontext) {
    edits(call, GraphEdit::set_copy, exec, node, params);
  }
  static void before(Entry, Call& call, CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params,
                     CUcontext) {
    edits(call, GraphEdit::set_set, exec, node, params);
  }
  static void before(Entry, Call& call, CUgraphExec exec, CUgraphNode, CUgraph child) {
    edits(call, GraphEdit::set_other, exec);
    call.graph.handle = child;
  }
  static void before(Entry, Call& call, CUgraphExec exec, CUgraphNode, CUgraphNodeParams* params) {
    edits(call, GraphEdit::set_other, exec);
    if (params && params->type == CU_GRAPH_NODE_TYPE_GRAPH) call.graph.handle = params->graph.graph;
  }
  // A disabled node touches less than we know of it.
  static void before(Entry, Call& call, CUgraphExec exec, CUgraphNode, unsigned) { edits(call, GraphEdit::none, exec); }
};

inline void adds_release(Call& call, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         const CUgraphEdgeData* data, std::size_t count, CUdeviceptr pointer) {
  call.graph.edit = GraphEdit::add_release;
  call.graph.handle = graph;
  call.memory.address = pointer;
  call.arguments = {out, dependencies, data, reinterpret_cast<const void*>(count)};
}

// A node that releases what another graph, or this one, has allocated.
struct GraphFree {
  static void before(Entry, Call& call, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                     std::size_t count, CUdeviceptr pointer) {
    adds_release(call, out, graph, dependencies, nullptr, count, pointer);
  }
};

// A node that allocates: from here on its memory has an address, by which other devices may reach it, too. One that
// releases.
struct GraphAlloc {
  static void before(Entry, Call& call, CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                     CUDA_MEM_ALLOC_NODE_PARAMS* params) {
    call.shown = params && is_for_others(*params);
  }
  static void before(Entry entry, Call& call, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                     std::size_t count, CUgraphNodeParams* params) {
    before(entry, call, out, graph, dependencies, nullptr, count, params);
  }
  static void before(Entry, Call& call, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                     const CUgraphEdgeData* data, std::size_t count, CUgraphNodeParams* params) {
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      adds_release(call, out, graph, dependencies, data, count, params->free.dptr);
    if (params) shares(call, *params);
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) call.shown = is_for_others(params->alloc);
  }

  static void after(Call& call, CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                    CUDA_MEM_ALLOC_NODE_PARAMS* params) {
    known(call, *params);
  }
  static void after(Call& call, CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams* params) {
    of_any(call, *params);
  }
  static void after(Call& call, CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t,
                    CUgraphNodeParams* params) {
    of_any(call, *params);
  }

 private:
  // Graphs may share memory that they hold at different times: it counts as mapped memory.
  template <class Params>
  static void known(Call& call, const Params& params) {
    allocation(call, is_for_others(params) ? MemoryKind::external : MemoryKind::mapped, params.bytesize);
    allocated(call, params.dptr);
  }
  // Whether more than its own device reaches it.
  template <class Params>
  static bool is_for_others(const Params& params) {
    const CUmemLocation& home = params.poolProps.location;
    for (std::size_t i = 0; params.accessDescs && i < params.accessDescCount; ++i) {
      const CUmemLocation& its = params.accessDescs[i].location;
      if (grants(params.accessDescs[i]) && (its.type != home.type || its.id != home.id)) return true;
    }
    return home.type != CU_MEM_LOCATION_TYPE_DEVICE || params.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED;
  }
  static void of_any(Call& call, const CUgraphNodeParams& params) {
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) known(call, params.alloc);
    shares(call, params);
  }
  static void shares(Call& call, const CUgraphNodeParams& params) {
    if (params.type != CU_GRAPH_NODE_TYPE_GRAPH) return;
    edits(call, GraphEdit::share, nullptr);
    call.graph.handle = params.graph.graph;
  }
};

}  // namespace nimble::shim::decode
