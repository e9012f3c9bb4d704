#include "tests/oracle/run/machine.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/integration/programs/common/driver.h"
#include "tests/oracle/program/ranges.h"

namespace nimble::oracle {
namespace {

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

void Machine::answered(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "step %u: %s: error %d\n", step_, call, result);
  std::exit(1);
}

Machine::Machine(const Program& program)
    : program_(program),
      address_(program.buffers.size()),
      last_address_(program.buffers.size()),
      digests_(program.buffers.size()) {
  start_driver();
  CUmodule plain = nullptr, proven = nullptr;
  ASK(cuModuleLoad(&plain, image_path("oracle.simcuda").c_str()));
  ASK(cuModuleLoad(&proven, image_path("oracle_ptx.simcuda").c_str()));
  modules_ = {plain, proven};
  for (std::uint32_t i = 0; i < program_.streams; ++i) {
    streams_.push_back(nullptr);
    if (program_.stream_kind == StreamKind::legacy) continue;
    ASK(cuStreamCreate(&streams_.back(),
                       program_.stream_kind == StreamKind::blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  }
  if (program_.spare_stream) {
    streams_.push_back(nullptr);
    ASK(cuStreamCreate(&streams_.back(), CU_STREAM_NON_BLOCKING));
  }
  for (std::uint32_t i = 0; i < program_.events + kHalves; ++i) {
    events_.push_back(nullptr);
    ASK(cuEventCreate(&events_.back(), CU_EVENT_DISABLE_TIMING));
  }
  for (std::uint32_t i = 0; i < address_.size(); ++i) make_buffer(i);
  for (std::size_t i = 0; i < program_.table.size(); ++i) {
    const CUdeviceptr to = at(program_.table[i]);
    std::memcpy(reinterpret_cast<char*>(address_[program_.table_host]) + i * 8, &to, 8);
  }
  if (!program_.table.empty())
    ASK(cuMemcpyHtoD(address_[program_.table_buffer], reinterpret_cast<void*>(address_[program_.table_host]), 16));
  ASK(cuCtxSynchronize());
  if (!program_.graph.empty()) capture_graph();
}

void Machine::make_buffer(std::uint32_t index) {
  const Buffer& buffer = program_.buffers[index];
  if (buffer.later) return;
  CUdeviceptr& address = address_[index];
  std::vector<unsigned> contents(buffer.bytes / 4 * kHalves);
  for (std::size_t i = 0; i < contents.size(); ++i)
    contents[i] = static_cast<unsigned>((i + 1) * 2654435761u + index * 40503u);
  void* host = nullptr;
  switch (buffer.memory) {
    case Memory::device:
      ASK(cuMemAlloc(&address, buffer.bytes));
      break;
    case Memory::managed:
      ASK(cuMemAllocManaged(&address, buffer.bytes, CU_MEM_ATTACH_GLOBAL));
      break;
    case Memory::pooled:
      ASK(cuMemAllocAsync(&address, buffer.bytes, streams_[0]));
      ASK(cuStreamSynchronize(streams_[0]));
      break;
    case Memory::pinned:
      ASK(cuMemAllocHost(&host, std::size_t{buffer.bytes} * kHalves));
      break;
    case Memory::pageable:
      pageable_.emplace_back(buffer.bytes);
      host = pageable_.back().data();
      break;
    case Memory::own_pool:
      if (pool_ == nullptr) make_pool();
      return;
    case Memory::local:
    case Memory::plain:
    case Memory::carried:
      return;
  }
  if (host == nullptr) {
    ASK(cuMemcpyHtoD(address, contents.data(), buffer.bytes));
  } else {
    std::memcpy(host, contents.data(), std::size_t{buffer.bytes} * (buffer.memory == Memory::pinned ? kHalves : 1));
    address = reinterpret_cast<CUdeviceptr>(host);
  }
  last_address_[index] = address;
}

void Machine::make_pool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  ASK(cuMemPoolCreate(&pool_, &props));
}

void Machine::capture_graph() {
  CUgraph graph = nullptr;
  CUstream stream = nullptr;
  ASK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (const Op& op : program_.graph) launch(op, stream);
  ASK(cuStreamEndCapture(stream, &graph));
  ASK(cuGraphInstantiate(&graph_, graph, 0));
}

CUdeviceptr Machine::at(const Place& drawn) const {
  const Place place = at_step(drawn, phase_);
  const Buffer& buffer = program_.buffers[place.buffer];
  return address_[place.buffer] + place.offset + (buffer.input ? half_ * buffer.bytes : 0);
}
bool Machine::on_host(const Place& place) const {
  const Memory memory = program_.buffers[place.buffer].memory;
  return memory == Memory::pinned || memory == Memory::pageable;
}

void Machine::begin_step(std::uint32_t step, std::uint32_t phase) {
  step_ = step;
  phase_ = phase;
  write_inputs();
}

void Machine::write_inputs() {
  if (program_.ending == Ending::none) return;
  half_ = program_.ending == Ending::events ? step_ % kHalves : 0;
  if (program_.ending == Ending::events && step_ >= kHalves) ASK(cuEventSynchronize(events_[program_.events + half_]));
  for (std::uint32_t i = 0; i < address_.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (!buffer.input) continue;
    auto* words = static_cast<unsigned*>(host(at({i, 0})));
    for (std::uint32_t word = 0; word < buffer.bytes / 4; ++word) words[word] = (step_ * 977 + word) * 2654435761u;
  }
}

void Machine::end_step() {
  if (program_.ending == Ending::synchronize) wait_for_all();
  if (program_.ending == Ending::events) ASK(cuEventRecord(events_[program_.events + half_], streams_[0]));
  if (program_.swaps) std::swap(address_[0], address_[1]);
  if (program_.extra_every != 0 && program_.streams == 1 && step_ % program_.extra_every == 1)
    ASK(cuMemsetD8Async(address_[0], static_cast<unsigned char>(step_), 16, streams_[0]));
}

void Machine::wait_for_all() {
  if (program_.streams == 1) {
    ASK(cuStreamSynchronize(streams_[0]));
  } else {
    ASK(cuCtxSynchronize());
  }
}

void Machine::allocate(const Op& op, CUstream stream) {
  const Buffer& buffer = program_.buffers[op.buffer];
  CUdeviceptr address = 0;
  const std::size_t bytes = buffer.bytes + op.more_bytes;
  const auto allocated = [&] {
    if (buffer.memory == Memory::plain) return cuMemAlloc(&address, bytes);
    if (buffer.memory == Memory::own_pool) return cuMemAllocFromPoolAsync(&address, bytes, pool_, stream);
    return cuMemAllocAsync(&address, bytes, stream);
  };
  CUresult result = allocated();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) result = allocated();  // as who has just made room
  answered("an allocation", result);
  address_[op.buffer] = last_address_[op.buffer] = address;
}

void Machine::release(const Op& op, CUstream stream) {
  CUdeviceptr& address = address_[op.buffer];
  if (address == 0) return;  // what the step before the first one would have left
  const bool plain = program_.buffers[op.buffer].memory == Memory::plain;
  if (op.blocking || plain) {
    // Of memory from a pool the driver does not wait for what uses it; and a blocking copy within the device, which is
    // on the default stream, returns before it is done.
    const bool copies =
        std::ranges::any_of(program_.ops, [](const Op& other) { return other.kind == OpKind::copy && other.blocking; });
    if (!plain) ASK(copies ? cuCtxSynchronize() : cuStreamSynchronize(stream));
    ASK(cuMemFree(address));
  } else {
    ASK(cuMemFreeAsync(address, stream));
  }
  address = 0;  // but last_address_ stays: what is stale leads there
}

void Machine::note(const void* bytes, std::size_t size) {
  if (!noting_) return;
  for (std::size_t i = 0; i < size; ++i)
    digest_ = (digest_ ^ static_cast<const unsigned char*>(bytes)[i]) * 1099511628211u;
}

void Machine::finish() {
  ASK(cuCtxSynchronize());
  for (std::uint32_t i = 0; i < address_.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.memory == Memory::carried && address_[i] != 0) ASK(cuMemFreeAsync(address_[i], streams_[0]));
    if (buffer.addresses || of_step(buffer.memory) || address_[i] == 0) continue;
    std::vector<unsigned char> contents(buffer.bytes);
    if (on_host({i, 0})) {
      std::memcpy(contents.data(), host(address_[i]), contents.size());
    } else {
      ASK(cuMemcpyDtoH(contents.data(), address_[i], contents.size()));
    }
    const std::uint64_t before = std::exchange(digest_, 0);
    note(contents.data(), contents.size());
    digests_[i] = std::exchange(digest_, before);
    note(contents.data(), contents.size());
    if (buffer.memory == Memory::pooled) ASK(cuMemFreeAsync(address_[i], streams_[0]));
  }
  ASK(cuCtxSynchronize());
  const std::uint32_t ran = host_functions_;
  if (ran != 0) note(&ran, sizeof ran);
}

}  // namespace nimble::oracle
