// The calls of a random program's ops.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/oracle/program/ranges.h"
#include "tests/oracle/run/machine.h"

namespace nimble::oracle {
namespace {

// As in kernels.cu.
struct Job {
  CUdeviceptr in;
  int count;
  unsigned salt;
  CUdeviceptr out, unused;
};
struct Pointers {
  CUdeviceptr data[3];
};

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

void Machine::issue(const Op& op) {
  const CUstream stream = streams_[op.stream];
  switch (op.kind) {
    case OpKind::launch:
      return launch(op, stream);
    case OpKind::copy:
      return copy(op, stream);
    case OpKind::set:
      return set(op, stream);
    case OpKind::alloc:
      return allocate(op, stream);
    case OpKind::free:
      return release(op, stream);
    case OpKind::graph:
      ASK(cuGraphLaunch(graph_, stream));
      return;
    case OpKind::record:
      ASK(cuEventRecord(events_[op.event], stream));
      return;
    case OpKind::wait:
      ASK(cuStreamWaitEvent(stream, events_[op.event], 0));
      return;
    case OpKind::host_wait:
      ASK(cuEventSynchronize(events_[op.event]));
      return read_places(op);
    case OpKind::poll:
      if (const CUresult result = cuEventQuery(events_[op.event]); result != CUDA_ERROR_NOT_READY) ASK(result);
      return;
    case OpKind::synchronize:
      wait_for_all();
      return read_places(op);
    default:
      return disturb(op, stream);
  }
}

void Machine::read_places(const Op& op) {
  for (const Place& place : op.places)
    note(host(at(place)), std::min(kReadBytes, program_.buffers[place.buffer].bytes - place.offset));
}

CUfunction Machine::function(Kernel kernel, bool proven) {
  if (reloaded_ != nullptr) {
    CUfunction anew = nullptr;
    ASK(cuModuleGetFunction(&anew, reloaded_, name_of(kernel)));
    return anew;
  }
  const std::lock_guard lock(functions_mutex_);
  CUfunction& found = functions_[proven ? 1 : 0][static_cast<std::size_t>(kernel)];
  if (found == nullptr) ASK(cuModuleGetFunction(&found, modules_[proven ? 1 : 0], name_of(kernel)));
  return found;
}

void Machine::launch(const Op& op, CUstream stream) {
  std::array<CUdeviceptr, 3> p{};
  for (std::size_t i = 0; i < op.places.size(); ++i) p[i] = at(op.places[i]);
  const std::uint32_t elements = count_at(op, phase_);
  auto count = static_cast<int>(elements), stride = static_cast<int>(op.stride);
  // What the host has read so far decides on what follows, as in real programs.
  unsigned salt = this->salt(op);
  Job job{};
  Pointers pointers{};
  long to = 0, from = 0;
  const auto go = [&](auto*... parameters) {
    void* arguments[] = {static_cast<void*>(parameters)...};
    // The same as one buffer, by the rules of a C structure.
    alignas(16) char buffer[128] = {};
    std::size_t size = 0;
    const auto put = [&](const auto* parameter) {
      size = (size + alignof(decltype(*parameter)) - 1) / alignof(decltype(*parameter)) * alignof(decltype(*parameter));
      std::memcpy(buffer + size, parameter, sizeof *parameter);
      size += sizeof *parameter;
    };
    (put(parameters), ...);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    ASK(cuLaunchKernel(function(op.kernel, op.proven), (elements + 31) / 32 + op.more_blocks, 1, 1, 32, 1, 1, 0, stream,
                       op.packed ? nullptr : arguments, op.packed ? extra : nullptr));
  };
  switch (op.kernel) {
    case Kernel::map1:
    case Kernel::map3:
    case Kernel::opaque_map:
      return go(&p[0], &p[1], &count, &salt);
    case Kernel::sometimes:
      return go(&p[0], &p[1], &count, &salt);
    case Kernel::gather:
      return go(&p[0], &p[1], &p[2], &count, &salt);
    case Kernel::in_place:
    case Kernel::opaque_in_place:
    case Kernel::fill:
    case Kernel::backwards:
      return go(&p[0], &count, &salt);
    case Kernel::accumulate:
    case Kernel::reduce:
    case Kernel::scatter:
    case Kernel::bytes:
      return go(&p[0], &p[1], &count);
    case Kernel::strided:
      return go(&p[0], &p[1], &count, &stride);
    case Kernel::by_struct:
      std::memset(&job, 0, sizeof job);
      job = {p[0], count, salt, p[1], op.stale ? last_address_[op.buffer] : 0};
      return go(&job);
    case Kernel::by_array:
      pointers = {{p[0], p[1], p[2]}};
      return go(&count, &pointers);
    case Kernel::moved:
      to = (static_cast<long>(op.places[1].offset) - static_cast<long>(op.places[0].offset)) / 4;
      from = (static_cast<long>(op.places[2].offset) - static_cast<long>(op.places[0].offset)) / 4;
      return go(&p[0], &to, &from, &count);
    case Kernel::through_table:
      return go(&p[0], &count);
    case Kernel::count:
      break;
  }
}

void Machine::copy(const Op& op, CUstream stream) {
  const CUdeviceptr to = at(op.places[0]), from = at(op.places[1]);
  const bool to_host = on_host(op.places[0]), from_host = on_host(op.places[1]);
  if (op.height > 1) {
    CUDA_MEMCPY2D rows{};
    rows.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    rows.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (to_host) rows.dstHost = host(to);
    if (!to_host) rows.dstDevice = to;
    if (from_host) rows.srcHost = host(from);
    if (!from_host) rows.srcDevice = from;
    rows.dstPitch = op.to_pitch;
    rows.srcPitch = op.from_pitch;
    rows.WidthInBytes = op.width;
    rows.Height = op.height;
    if (op.blocking) {
      ASK(cuMemcpy2D(&rows));
    } else {
      ASK(cuMemcpy2DAsync(&rows, stream));
    }
  } else if (op.blocking) {
    ASK(cuMemcpy(to, from, op.width));
  } else if (to_host) {
    ASK(cuMemcpyDtoHAsync(host(to), from, op.width, stream));
  } else if (from_host) {
    ASK(cuMemcpyHtoDAsync(to, host(from), op.width, stream));
  } else if (op.width % 3 == 0) {
    ASK(cuMemcpyAsync(to, from, op.width, stream));
  } else {
    ASK(cuMemcpyDtoDAsync(to, from, op.width, stream));
  }
}

void Machine::set(const Op& op, CUstream stream) {
  const CUdeviceptr to = at(op.places[0]);
  const std::size_t elements = op.width / op.element;
  if (op.height > 1) {
    if (op.element == 1)
      ASK(cuMemsetD2D8Async(to, op.to_pitch, static_cast<unsigned char>(op.salt), elements, op.height, stream));
    if (op.element == 2)
      ASK(cuMemsetD2D16Async(to, op.to_pitch, static_cast<unsigned short>(op.salt), elements, op.height, stream));
    if (op.element == 4) ASK(cuMemsetD2D32Async(to, op.to_pitch, op.salt, elements, op.height, stream));
  } else {
    if (op.element == 1) ASK(cuMemsetD8Async(to, static_cast<unsigned char>(op.salt), elements, stream));
    if (op.element == 2) ASK(cuMemsetD16Async(to, static_cast<unsigned short>(op.salt), elements, stream));
    if (op.element == 4) ASK(cuMemsetD32Async(to, op.salt, elements, stream));
  }
}

}  // namespace nimble::oracle
