// The one state of the simulated driver, and the lock that guards all of it.
//
// It is made at the first call and never destroyed, and neither is any table of the driver: programs still call it from
// the destructors of their globals. A child of fork that makes no call into the driver is not disturbed by it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tests/simcuda/driver/handles.h"
#include "tests/simcuda/driver/objects.h"
#include "tests/simcuda/engine/engine.h"
#include "tests/simcuda/graph/graph.h"
#include "tests/simcuda/graph/graph_reserve.h"
#include "tests/simcuda/memory/memory.h"
#include "tests/simcuda/module/module.h"
#include "tests/simcuda/observe/clock.h"
#include "tests/simcuda/observe/tracking.h"

namespace simcuda {

struct Options {
  std::uint64_t seed = 0;
  bool log = false, accesses = false, races = false;
  std::string inject, report;
  unsigned idle_ms = 0;
  bool no_hints = false;
  int attribute = 0, attribute_value = 0;  // of the device's, instead of its own
};

struct Counters {
  std::uint64_t submissions = 0, graph_launches = 0, kernels = 0, copies = 0, sets = 0, graph_nodes = 0,
                unimplemented = 0, failures = 0;
};

struct Driver {
  std::mutex mutex;
  std::condition_variable changed;  // a host function returned, or work was submitted
  Options options;
  bool initialised = false;
  std::uint64_t calls = 0;
  std::uint32_t observed_call = 0;  // the one at hand, as observers know it
  Caller caller;                    // the same, for what is tracked

  Engine engine;
  Memory memory;
  SimClock clock;
  Tracking tracking;
  Counters counters;

  Slab<CUctx_st> contexts;
  Slab<CUstream_st> streams;
  Slab<CUevent_st> events;
  Slab<CUmemPoolHandle_st> pools;
  Slab<CUmod_st> modules;
  Slab<CUfunc_st> functions;
  Slab<CUlib_st> libraries;
  Slab<CUkern_st> kernels;
  Slab<CUgraph_st> graphs;
  Slab<CUgraphNode_st> nodes;
  Slab<CUgraphExec_st> execs;

  // Memory that graphs allocated and did not free: it outlives them.
  std::unordered_map<Block*, std::shared_ptr<GraphMemory>> outstanding;
  GraphReserve graph_reserve{*this};

  CUcontext primary = nullptr;
  unsigned primary_uses = 0, primary_flags = 0;
  CUmemoryPool default_pool = nullptr, current_pool = nullptr;
  std::uint64_t next_context_id = 1, next_stream_id = 1, next_capture_id = 1;

  Driver();
};

Driver& driver();

// Runs with every thread's default, the per-thread stream of this thread: made at its first use.
CUstream per_thread_stream(CUcontext context);
CUcontext current_context();
std::uint64_t thread_number();

// Ends whatever a context holds; waits for its work.
void end_context(CUcontext context);
void init_context(CUcontext context);

CUstream make_stream(CUcontext context, unsigned flags, int priority);

// Counts one submission to the GPU and what it costs the host.
inline void count_submission(Driver& d, double host_us) {
  ++d.counters.submissions;
  d.clock.spend(host_us);
}

}  // namespace simcuda
