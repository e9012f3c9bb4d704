// From a call to the queue, or, where the stream captures, to a graph. Under the driver's mutex.
#pragma once

#include "tests/simcuda/driver/entry.h"

namespace simcuda {

// Puts work at the end of a stream, or adds it as a node of what the stream captures.
CUresult submit(Call& call, CUstream stream, CUgraphNodeType type, Work&& work);

// Waits for all that a stream was given; the host then knows what it did.
CUresult wait_for(Call& call, CUstream stream);
CUresult wait_for(Call& call, const Tail& tail, CUcontext context);
// The host learned that this has run, without waiting.
void observe(Call& call, const Tail& tail);
// What a submission of this kind costs the host, and the counters.
void account(Driver& d, WorkKind kind);
// Whether all of it has run.
bool idle(CUstream stream);

inline Work make_work(WorkKind kind, const char* name) {
  Work work;
  work.kind = kind;
  work.name = name;
  return work;
}

}  // namespace simcuda
