// See launch.h. This is the path that programs take most: parameters go straight into the op, and nothing is looked up.
#include "tests/simcuda/engine/launch.h"

#include <cstring>

#include "tests/simcuda/engine/op_failure.h"
#include "tests/simcuda/engine/submit.h"
#include "tests/simcuda/graph/capture.h"

namespace simcuda {
namespace {

constexpr unsigned kMaxShared = 232448, kSharedForAll = 48 << 10;

// What a launch may have of dynamic shared memory: more than the least that all kernels may have is to be asked for.
unsigned shared_limit(CUfunction function) {
  const auto& set = valid(function) ? function->attributes : reinterpret_cast<CUkernel>(function)->attributes;
  const auto asked = set.find(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  return asked == set.end() ? kSharedForAll : std::max(kSharedForAll, static_cast<unsigned>(asked->second));
}

CUresult fill_from_extra(const SimKernel& kernel, void* const* extra, Bytes& bytes) {
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const std::size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (size == nullptr || (buffer == nullptr && *size != 0) || *size < kernel.param_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bytes.assign(static_cast<const std::byte*>(buffer), kernel.param_bytes);
  return CUDA_SUCCESS;
}

struct LaunchOptions {
  bool cooperative = false;
  bool programmatic = false;  // it may begin when the kernel before it says so
  CUevent completion_event = nullptr;
  LaunchAttributes kept;  // of a node, when captured
};

CUresult read_attributes(const CUlaunchConfig& config, LaunchOptions& options) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
        continue;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        options.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& cluster = attribute.value.clusterDim;
        if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || cluster.x * cluster.y * cluster.z > 16) {
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        if (config.gridDimX % cluster.x != 0 || config.gridDimY % cluster.y != 0 || config.gridDimZ % cluster.z != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        options.completion_event = attribute.value.programmaticEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        options.completion_event = attribute.value.launchCompletionEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        options.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      default:
        // Priorities, domains, carveouts: hints.
        if (attribute.id >= CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
        break;
    }
    options.kept[attribute.id] = attribute.value;
  }
  if (options.completion_event != nullptr && !valid(options.completion_event)) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

// A captured kernel with a single predecessor: the edge says that it waits for less than that one's end. When the graph
// runs it waits for the end, which is always allowed.
void let_overlap(CUgraphNode node) {
  if (node->dependencies.size() != 1 || node->dependencies[0].node->type != CU_GRAPH_NODE_TYPE_KERNEL) return;
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  node->dependencies[0].data = data;
  node->dependencies[0].node->dependents.back().data = data;
}

CUresult check_cooperative(Call& call, const Work& work) {
  const nimble::DeviceModel& model = call.driver.clock.model();
  const std::uint64_t resident = static_cast<std::uint64_t>(model.multiprocessors) *
                                 static_cast<std::uint64_t>(nimble::blocks_at_once(model, work.launch.block.volume()));
  return work.launch.grid.volume() > resident ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

CUresult launch(Call& call, CUfunction function, Dim grid, Dim block, unsigned shared_bytes, CUstream handle,
                void* const* parameters, void* const* extra, const LaunchOptions* options) {
  CUstream stream = call.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = check_stream(stream)) return error;
  Driver& d = call.driver;
  Op* op = d.engine.make();
  CUresult error = fill_launch(op->work, function, stream->context, grid, block, shared_bytes, parameters, extra);
  if (error == CUDA_SUCCESS && options != nullptr && options->cooperative) {
    op->work.launch.cooperative = true;
    error = check_cooperative(call, op->work);
  }
  if (error != CUDA_SUCCESS) {
    d.engine.drop(op);
    return error;
  }
  if (capturing(stream)) {
    Work work = std::move(op->work);
    d.engine.drop(op);
    CUgraphNode node = nullptr;
    error = capture_node(stream, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work), &node);
    if (error == CUDA_SUCCESS && options != nullptr) {
      node->attributes = options->kept;
      if (options->programmatic) let_overlap(node);
    }
    return error;
  }
  if ((error = refusal(call, op->work, false)) != CUDA_SUCCESS) {
    d.engine.drop(op);
    return error;
  }
  account(d, WorkKind::kKernel);
  d.engine.submit(op, stream);
  if (options != nullptr && options->completion_event != nullptr) {
    // It represents the end of this kernel, which is never too early.
    record_event(options->completion_event, stream->tail);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult fill_launch(Work& work, CUfunction function, CUcontext context, Dim grid, Dim block, unsigned shared_bytes,
                     void* const* parameters, void* const* extra) {
  const KernelCode* code = code_of(function);
  if (code == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
      grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      block.volume() > 1024 || shared_bytes > kMaxShared || shared_bytes > shared_limit(function)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const SimKernel& kernel = code->kernel;
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    if (const CUresult error = fill_from_extra(kernel, extra, work.parameters)) return error;
  } else {
    if (kernel.param_count != 0 && parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::byte* bytes = work.parameters.resize(kernel.param_bytes);
    for (std::uint32_t i = 0; i < kernel.param_count; ++i) {
      if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(bytes + kernel.params[i].offset, parameters[i], kernel.params[i].size);
    }
  }
  work.kind = WorkKind::kKernel;
  work.name = code->name;
  work.launch = {code, function, context, grid, block, shared_bytes, false};
  return CUDA_SUCCESS;
}

}  // namespace simcuda

using namespace simcuda;

SIM_CALL_PTSZ(cuLaunchKernel, kContext,
              (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
               void** extra),
              (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)) {
  return launch(call, function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, parameters,
                extra, nullptr);
}

SIM_CALL_PTSZ(cuLaunchKernelEx, kContext,
              (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra),
              (config, function, parameters, extra)) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchOptions options;
  if (const CUresult error = read_attributes(*config, options)) return error;
  return launch(call, function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, config->hStream,
                parameters, extra, config->numAttrs != 0 ? &options : nullptr);
}

SIM_CALL_PTSZ(cuLaunchCooperativeKernel, kContext,
              (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters),
              (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters)) {
  LaunchOptions options;
  options.cooperative = true;
  CUlaunchAttributeValue value{};
  value.cooperative = 1;
  options.kept[CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = value;
  return launch(call, function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, parameters,
                nullptr, &options);
}
