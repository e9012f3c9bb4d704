// What only steps in disorder do.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/integration/programs/common/driver.h"
#include "tests/oracle/run/machine.h"

namespace nimble::oracle {

void Machine::disturb(const Op& op, CUstream stream) {
  switch (op.kind) {
    case OpKind::keep:
      address_[op.other] = std::exchange(address_[op.buffer], 0);
      return;
    case OpKind::exchange:
      return std::swap(address_[op.buffer], address_[op.other]);
    case OpKind::replace:
      return op.blocking ? renew(op.buffer, op.salt) : replace(op.buffer);
    case OpKind::renew_event:
      ASK(cuEventDestroy(events_[op.event]));
      ASK(cuEventCreate(&events_[op.event], CU_EVENT_DISABLE_TIMING));
      return;
    case OpKind::query:
      if (const CUresult result = cuStreamQuery(stream); result != CUDA_ERROR_NOT_READY)
        answered("cuStreamQuery", result);
      return;
    case OpKind::wait_stream:
      ASK(cuStreamSynchronize(stream));
      return;
    case OpKind::read_back:
      return read_back(op, stream);
    case OpKind::host_function: {
      const CUhostFn count = [](void* ran) { ++*static_cast<std::atomic<std::uint32_t>*>(ran); };
      ASK(cuLaunchHostFunc(stream, count, &host_functions_));
      return;
    }
    case OpKind::look:
      return look_at(op);
    case OpKind::captured:
      return launch_captured(op, stream);
    case OpKind::reloaded:
      return launch_reloaded(op, stream);
    case OpKind::dawdle:
      usleep(op.count);
      return;
    default:
      return;
  }
}

// To where there was nothing before, with all that it holds.
void Machine::replace(std::uint32_t index) {
  const Buffer& buffer = program_.buffers[index];
  CUdeviceptr& address = address_[index];
  ASK(cuCtxSynchronize());
  if (on_host({index, 0})) {
    void* moved = nullptr;
    ASK(cuMemAllocHost(&moved, std::size_t{buffer.bytes} * kHalves));
    if (moved == nullptr) return;
    std::memcpy(moved, reinterpret_cast<void*>(address), std::size_t{buffer.bytes} * kHalves);
    ASK(cuMemFreeHost(reinterpret_cast<void*>(address)));
    address = reinterpret_cast<CUdeviceptr>(moved);
    return;
  }
  CUdeviceptr moved = 0;
  if (cuMemAlloc(&moved, buffer.bytes) != CUDA_SUCCESS) ASK(cuMemAlloc(&moved, buffer.bytes));
  ASK(cuMemcpyDtoD(moved, address, buffer.bytes));
  ASK(cuCtxSynchronize());
  ASK(cuMemFree(address));
  address = moved;
}

// Who frees memory waits for all that uses it.
void Machine::renew(std::uint32_t index, unsigned value) {
  const Buffer& buffer = program_.buffers[index];
  ASK(cuMemFree(address_[index]));
  CUdeviceptr address = 0;
  if (cuMemAlloc(&address, buffer.bytes) != CUDA_SUCCESS) ASK(cuMemAlloc(&address, buffer.bytes));
  ASK(cuMemsetD32(address, value, buffer.bytes / 4));
  ASK(cuCtxSynchronize());
  address_[index] = address;
}

void Machine::read_back(const Op& op, CUstream) {
  if (program_.streams > 1 || program_.stream_kind == StreamKind::non_blocking) wait_for_all();
  for (const Place& place : op.places) {
    std::vector<unsigned char> bytes(op.width);
    ASK(cuMemcpyDtoH(bytes.data(), at(place), bytes.size()));
    note(bytes.data(), bytes.size());
  }
}

void Machine::look_at(const Op& op) {
  const Place& place = op.places[0];
  const Buffer& buffer = program_.buffers[place.buffer];
  const CUdeviceptr address = address_[place.buffer];
  unsigned type = 0;
  ASK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + place.offset));
  note(&type, sizeof type);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  ASK(cuMemGetAddressRange(&base, &size, address + place.offset));
  const bool right = base == address && size >= buffer.bytes;
  note(&right, sizeof right);
}

void Machine::launch_captured(const Op& op, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(op, stream);
  ASK(cuStreamEndCapture(stream, &graph));
  if (graph == nullptr) return;
  ASK(cuGraphInstantiate(&exec, graph, 0));
  ASK(cuGraphLaunch(exec, stream));
  ASK(cuGraphExecDestroy(exec));
  ASK(cuGraphDestroy(graph));
}

void Machine::launch_reloaded(const Op& op, CUstream stream) {
  ASK(cuModuleLoad(&reloaded_, image_path(op.proven ? "oracle_ptx.simcuda" : "oracle.simcuda").c_str()));
  if (reloaded_ == nullptr) return;
  launch(op, stream);
  ASK(cuStreamSynchronize(stream));
  ASK(cuModuleUnload(std::exchange(reloaded_, nullptr)));
}

}  // namespace nimble::oracle
