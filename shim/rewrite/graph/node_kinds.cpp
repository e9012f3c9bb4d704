#include "shim/rewrite/graph/node_kinds.h"

#include <algorithm>

#include "shim/intercept/decode/copy.h"

namespace nimble::shim {

namespace {

std::string read_kernel(const GraphApi& driver, CUgraphNode node, Call& call, CUcontext& context) {
  CUkernelNodeAttrValue value{};
  if (driver.cuGraphKernelNodeGetAttribute_(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
          CUDA_SUCCESS &&
      value.deviceUpdatableKernelNode.deviceUpdatable)
    return "it holds a kernel that the device may change";
  call.launch.cooperative =
      driver.cuGraphKernelNodeGetAttribute_(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS &&
      value.cooperative != 0;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  if (driver.cuGraphKernelNodeGetParams_v2_(node, &kernel) != CUDA_SUCCESS) return kRefused;
  context = kernel.ctx;
  call.symbol = kKernelOfAGraph;
  call.kind = CallKind::launch;
  // Runtimes launch kernels by a handle that all contexts share: the one known from launches.
  call.launch.function = kernel.kern ? reinterpret_cast<CUfunction>(kernel.kern) : kernel.func;
  if (!call.launch.function) return "it holds a kernel without a function";
  call.launch.grid = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ};
  call.launch.block = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ};
  call.launch.shared_bytes = kernel.sharedMemBytes;
  call.launch.kernel_params = kernel.kernelParams;
  call.launch.extra = kernel.extra;
  return {};
}

std::string read_copy(const GraphApi& driver, CUgraphNode node, Call& call) {
  CUDA_MEMCPY3D copy{};
  if (driver.cuGraphMemcpyNodeGetParams_(node, &copy) != CUDA_SUCCESS) return kRefused;
  if (!decode::between_memory(copy)) return "it copies from or to an array";
  if (copy.Depth > 1) return "it copies layers";
  call.symbol = kCopyOfAGraph;
  call.kind = CallKind::copy;
  decode::Copy2D::rows(call, copy, decode::box_dst_3d(copy), decode::box_src_3d(copy));
  // The copy carries what its source holds when it runs, which we cannot know now.
  call.transfer.device_source = true;
  return {};
}

std::string read_set(const GraphApi& driver, CUgraphNode node, Call& call) {
  CUDA_MEMSET_NODE_PARAMS set{};
  if (driver.cuGraphMemsetNodeGetParams_(node, &set) != CUDA_SUCCESS) return kRefused;
  call.symbol = kSetOfAGraph;
  call.kind = CallKind::set;
  call.transfer.dst = {set.dst, set.pitch};
  call.transfer.width = set.width * set.elementSize;
  call.transfer.height = std::max<std::size_t>(set.height, 1);
  call.transfer.value = set.value;
  call.transfer.element = set.elementSize;
  return {};
}

}  // namespace

std::string read_node(const GraphApi& driver, CUgraphNode node, CUgraphNodeType kind, Call& call,
                      std::optional<CUcontext>& context) {
  call.traced = call.has_stream = true;
  switch (kind) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read_kernel(driver, node, call, context.emplace());
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return read_copy(driver, node, call);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_set(driver, node, call);
    default:
      return "it holds a node that is not a kernel, copy or set";
  }
}

}  // namespace nimble::shim
