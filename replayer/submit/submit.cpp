#include "replayer/submit/submit.h"

namespace nimble {

namespace {

void fill_arguments(const Schedule& schedule, const OpMatch& live, std::uint32_t index, std::vector<void*>& arguments) {
  const ScheduleFunction& function = schedule.functions[schedule.ops[index].function];
  arguments.clear();
  for (const ParamLayout& param : function.params) {
    // The driver only reads arguments; its signature is older than const.
    arguments.push_back(const_cast<std::uint8_t*>(live.params(index)) + param.offset);
  }
}

CUmemorytype memory_type(const Schedule& schedule, const SchedulePointer& pointer) {
  switch (schedule.objects[pointer.object].memory) {
    case MemoryKind::pinned:
    case MemoryKind::registered:
      return CU_MEMORYTYPE_HOST;
    case MemoryKind::managed:
      return CU_MEMORYTYPE_UNIFIED;
    default:
      return CU_MEMORYTYPE_DEVICE;
  }
}

void* host_pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUDA_KERNEL_NODE_PARAMS kernel_node(const Schedule& schedule, const OpMatch& live, std::uint32_t index,
                                    std::vector<void*>& arguments) {
  fill_arguments(schedule, live, index, arguments);
  const OpValues& op = live.live(index);
  CUDA_KERNEL_NODE_PARAMS node{};
  // A CUkernel has its own field, which counts if `func` is null.
  if (op.is_kernel_handle) {
    node.kern = reinterpret_cast<CUkernel>(op.function);
  } else {
    node.func = op.function;
  }
  node.gridDimX = op.grid[0];
  node.gridDimY = op.grid[1];
  node.gridDimZ = op.grid[2];
  node.blockDimX = op.block[0];
  node.blockDimY = op.block[1];
  node.blockDimZ = op.block[2];
  node.sharedMemBytes = op.shared_bytes;
  node.kernelParams = arguments.data();
  return node;
}

CUDA_MEMCPY3D copy_node(const Schedule& schedule, const OpMatch& live, std::uint32_t index) {
  const OpValues& op = live.live(index);
  CUDA_MEMCPY3D node{};
  node.srcMemoryType = memory_type(schedule, schedule.ops[index].src);
  node.srcHost = host_pointer(op.src.address);
  node.srcDevice = op.src.address;
  node.srcPitch = op.src.pitch;
  node.dstMemoryType = memory_type(schedule, schedule.ops[index].dst);
  node.dstHost = host_pointer(op.dst.address);
  node.dstDevice = op.dst.address;
  node.dstPitch = op.dst.pitch;
  node.WidthInBytes = op.width;
  node.Height = op.height;
  node.Depth = 1;
  return node;
}

CUDA_MEMSET_NODE_PARAMS set_node(const OpMatch& live, std::uint32_t index) {
  const OpValues& op = live.live(index);
  CUDA_MEMSET_NODE_PARAMS node{};
  node.dst = op.dst.address;
  node.pitch = op.dst.pitch;
  node.value = op.value;
  node.elementSize = op.element;
  node.width = op.width / op.element;
  node.height = op.height;
  return node;
}

CUresult submit_call(const DriverApi& driver, const Schedule& schedule, const OpMatch& live, std::uint32_t index,
                     CUstream stream, std::vector<void*>& scratch) {
  const OpValues& op = live.live(index);
  switch (schedule.ops[index].kind) {
    case CallKind::launch:
      fill_arguments(schedule, live, index, scratch);
      return driver.cuLaunchKernel_(op.function, op.grid[0], op.grid[1], op.grid[2], op.block[0], op.block[1],
                                    op.block[2], op.shared_bytes, stream, scratch.data(), nullptr);
    case CallKind::copy: {
      if (op.height == 1) return driver.cuMemcpyAsync_(op.dst.address, op.src.address, op.width, stream);
      CUDA_MEMCPY2D copy{};
      copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
      copy.srcDevice = op.src.address;
      copy.srcPitch = op.src.pitch;
      copy.dstDevice = op.dst.address;
      copy.dstPitch = op.dst.pitch;
      copy.WidthInBytes = op.width;
      copy.Height = op.height;
      return driver.cuMemcpy2DAsync_(&copy, stream);
    }
    case CallKind::set: {
      const std::size_t width = op.width / op.element;
      const auto value16 = static_cast<unsigned short>(op.value);
      const auto value8 = static_cast<unsigned char>(op.value);
      const CUdeviceptr at = op.dst.address;
      if (op.height == 1) {
        if (op.element == 1) return driver.cuMemsetD8Async_(at, value8, width, stream);
        if (op.element == 2) return driver.cuMemsetD16Async_(at, value16, width, stream);
        return driver.cuMemsetD32Async_(at, op.value, width, stream);
      }
      if (op.element == 1) return driver.cuMemsetD2D8Async_(at, op.dst.pitch, value8, width, op.height, stream);
      if (op.element == 2) return driver.cuMemsetD2D16Async_(at, op.dst.pitch, value16, width, op.height, stream);
      return driver.cuMemsetD2D32Async_(at, op.dst.pitch, op.value, width, op.height, stream);
    }
    case CallKind::event_record:
      return driver.cuEventRecord_(op.event, stream);
    case CallKind::event_wait:
      return driver.cuStreamWaitEvent_(stream, op.event, 0);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // no other kind is ever held
  }
}

}  // namespace nimble
