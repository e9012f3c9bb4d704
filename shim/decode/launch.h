// Launches: kernels in all their forms, host functions, program graphs.
#pragma once

#include "shim/decode/entry.h"

namespace nimble::shim::decode {

struct LaunchKernel {
  static void before(Entry entry, Call& call, CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream, void** params, void** extra) {
    op(entry, call, CallKind::launch, stream);
    call.function = function;
    call.grid = {gx, gy, gz};
    call.block = {bx, by, bz};
    call.shared_bytes = shared_bytes;
    call.kernel_params = params;
    call.extra = extra;
  }
};

struct LaunchCooperative {
  static void before(Entry entry, Call& call, CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream, void** params) {
    LaunchKernel::before(entry, call, function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, nullptr);
    call.cooperative = true;
    call.plain = false;
  }
};

// Whether a launch attribute says anything: many callers pass attributes at their default.
inline bool meaningful(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
      return false;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return attribute.value.cooperative != 0;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      return attribute.value.programmaticStreamSerializationAllowed != 0;
    default:
      return true;
  }
}

struct LaunchKernelEx {
  static void before(Entry entry, Call& call, const CUlaunchConfig* config, CUfunction function, void** params,
                     void** extra) {
    if (!config) return;  // the driver will say so
    LaunchKernel::before(entry, call, function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                         config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, params, extra);
    call.attributes = config->attrs;
    call.attribute_count = config->attrs ? config->numAttrs : 0;
    for (std::uint32_t i = 0; i < call.attribute_count; ++i) {
      if (!meaningful(call.attributes[i])) continue;
      call.plain = false;
      if (call.attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) call.cooperative = true;
    }
  }
};

struct HostFunction {
  template <class... Rest>
  static void before(Entry entry, Call& call, CUstream stream, Rest...) {
    op(entry, call, CallKind::host_function, stream);
  }
};

struct GraphLaunch {
  static void before(Entry entry, Call& call, CUgraphExec, CUstream stream) {
    op(entry, call, CallKind::graph_launch, stream);
  }
};

// Work whose accesses are not read. The stream is the one argument that is a stream, else the default stream.
struct Opaque {
  template <class... Args>
  static void before(Entry entry, Call& call, Args... args) {
    CUstream stream = nullptr;
    ((take(stream, args)), ...);
    op(entry, call, CallKind::opaque, stream);
    call.plain = false;
  }

 private:
  template <class T>
  static void take(CUstream&, T) {}
  static void take(CUstream& stream, CUstream argument) { stream = argument; }
};

}  // namespace nimble::shim::decode
