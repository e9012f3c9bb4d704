// Launches: kernels in all their forms, host functions, program graphs.
#pragma once

#include "nimble/internal/launch_attributes.h"
#include "shim/intercept/decode/access_lists.h"

namespace nimble::shim::decode {

// A kernel: function, shape, shared memory, parameters.
struct LaunchKernel {
  static void before(Entry entry, Call& call, CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream, void** params, void** extra) {
    op(entry, call, CallKind::launch, stream);
    call.launch.function = function;
    call.launch.grid = {gx, gy, gz};
    call.launch.block = {bx, by, bz};
    call.launch.shared_bytes = shared_bytes;
    call.launch.kernel_params = params;
    call.launch.extra = extra;
  }
};

// A cooperative kernel: like any other, but ordered with everything.
struct LaunchCooperative {
  static void before(Entry entry, Call& call, CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream, void** params) {
    LaunchKernel::before(entry, call, function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, nullptr);
    call.launch.cooperative = true;
    call.plain = false;
  }
};

static_assert(kAccessPolicyWindow == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
static_assert(kSynchronizationPolicy == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY);
static_assert(kClusterDimension == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(kClusterSchedulingPolicyPreference == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
static_assert(kLaunchPriority == CU_LAUNCH_ATTRIBUTE_PRIORITY);
static_assert(kMemSyncDomainMap == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP);
static_assert(kMemSyncDomain == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN);
static_assert(kPreferredClusterDimension == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION);
static_assert(kPreferredSharedMemoryCarveout == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);

// The event that a launch records by an attribute of its own, if any.
inline CUevent launch_event(const CUlaunchAttribute& attribute) {
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return attribute.value.programmaticEvent.event;
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) return attribute.value.launchCompletionEvent.event;
  return nullptr;
}

// A kernel: function, shape, shared memory, parameters, attributes, and the event that an attribute records. With
// attributes that are not at their default it is ordered with everything.
struct LaunchKernelEx {
  static void before(Entry entry, Call& call, const CUlaunchConfig* config, CUfunction function, void** params,
                     void** extra) {
    if (!config) return;  // the driver will say so
    LaunchKernel::before(entry, call, function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                         config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, params, extra);
    call.launch.attributes = config->attrs;
    call.launch.attribute_count = config->attrs ? config->numAttrs : 0;
    for (std::uint32_t i = 0; i < call.launch.attribute_count; ++i) {
      if (!meaningful(call.launch.attributes[i])) continue;
      call.plain = false;
      if (call.launch.attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) call.launch.cooperative = true;
      // There are two such attributes, and a launch may have both.
      if (const CUevent event = launch_event(call.launch.attributes[i]))
        (call.event ? call.event2 : call.event) = event;
    }
  }
};

// A host function in stream order, which may touch anything.
struct HostFunction {
  template <class... Rest>
  static void before(Entry entry, Call& call, CUstream stream, Rest...) {
    op(entry, call, CallKind::host_function, stream);
  }
};

// A graph of the program: what its nodes touch, if all of them could be read.
struct GraphLaunch {
  static void before(Entry entry, Call& call, CUgraphExec exec, CUstream stream) {
    op(entry, call, CallKind::graph_launch, stream);
    call.graph.exec = exec;
  }
};

// Uploads a graph ahead of its launch. It touches none of the program's memory, but is ordered with everything.
struct GraphUpload {
  static void before(Entry entry, Call& call, CUgraphExec, CUstream stream) { Opaque::before(entry, call, stream); }
};

}  // namespace nimble::shim::decode
