// Stream capture: what a stream is given becomes nodes of a graph. Guarded by the driver's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simcuda/driver/objects.h"
#include "tests/simcuda/engine/work.h"

namespace simcuda {

class Call;

struct Capture {
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  bool own_graph = true;  // false where the program gave the graph to capture into
  CUstream origin = nullptr;
  std::vector<CUstream> streams;  // the origin and those that joined
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;
  bool invalid = false, ended = false;
  std::vector<CUgraphEdgeData> edge_data;  // what cuStreamGetCaptureInfo_v3 points to
};

inline bool capturing(CUstream stream) { return stream->capture != nullptr; }

// Adds a node at the end of a capturing stream.
CUresult capture_node(CUstream stream, CUgraphNodeType type, Work&& work, CUgraphNode* added = nullptr);
// A capturing stream waits for an event, or a stream waits for an event that was recorded in a capture, and so joins
// it.
CUresult join_capture(CUstream stream, CUevent event);
// An allocation or release in stream order, captured.
CUresult capture_allocation(CUstream stream, std::uint64_t bytes, const CUmemPoolProps& props, CUdeviceptr* pointer);
void invalidate(const std::shared_ptr<Capture>& capture);

// Before anything else on a stream: is it in the way of a capture?
CUresult check_stream(CUstream stream);
// A wait for this context while something in it captures.
CUresult forbid_in_context(CUcontext context);
// Queries that are illegal on a capturing stream; observed on hardware (tests/fidelity), documented nowhere.
CUresult forbid_question(CUstream stream);
// A wait for, or question about, this stream.
CUresult forbid_wait_for(Call& call, CUstream stream);

// Stops everything that a stream captures: it is destroyed.
void abandon_capture(CUstream stream);

}  // namespace simcuda
