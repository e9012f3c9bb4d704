#include "tests/oracle/runner.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/integration/programs/driver.h"
#include "tests/oracle/ranges.h"

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

class Runner {
 public:
  explicit Runner(const Program& program)
      : program_(program), address_(program.buffers.size()), last_address_(program.buffers.size()) {
    set_up();
  }

  std::uint64_t run() {
    for (step_ = 0; step_ < program_.repeats; ++step_) {
      phase_ = step_ < program_.calm ? 0 : step_ - program_.calm;
      write_inputs();
      for (const Op& op : program_.ops)
        if (in_step(op, phase_)) issue(op);
      end_step();
    }
    return finish();
  }

 private:
  void set_up() {
    start_driver();
    CUmodule plain = nullptr, proven = nullptr;
    CHECK(cuModuleLoad(&plain, image_path("oracle.simcuda").c_str()));
    CHECK(cuModuleLoad(&proven, image_path("oracle_ptx.simcuda").c_str()));
    modules_ = {plain, proven};
    for (std::uint32_t i = 0; i < program_.streams; ++i) {
      streams_.push_back(nullptr);
      if (program_.stream_kind == StreamKind::legacy) continue;
      CHECK(cuStreamCreate(&streams_.back(),
                           program_.stream_kind == StreamKind::blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    for (std::uint32_t i = 0; i < program_.events + kHalves; ++i) {
      events_.push_back(nullptr);
      CHECK(cuEventCreate(&events_.back(), CU_EVENT_DISABLE_TIMING));
    }
    for (std::uint32_t i = 0; i < address_.size(); ++i) make_buffer(i);
    for (std::size_t i = 0; i < program_.table.size(); ++i) {
      const CUdeviceptr to = at(program_.table[i]);
      std::memcpy(reinterpret_cast<char*>(address_[program_.table_host]) + i * 8, &to, 8);
    }
    if (!program_.table.empty())
      CHECK(cuMemcpyHtoD(address_[program_.table_buffer], reinterpret_cast<void*>(address_[program_.table_host]), 16));
    CHECK(cuCtxSynchronize());
    if (!program_.graph.empty()) capture();
  }

  void make_buffer(std::uint32_t index) {
    const Buffer& buffer = program_.buffers[index];
    CUdeviceptr& address = address_[index];
    std::vector<unsigned> contents(buffer.bytes / 4 * kHalves);
    for (std::size_t i = 0; i < contents.size(); ++i)
      contents[i] = static_cast<unsigned>((i + 1) * 2654435761u + index * 40503u);
    void* host = nullptr;
    switch (buffer.memory) {
      case Memory::device:
        CHECK(cuMemAlloc(&address, buffer.bytes));
        break;
      case Memory::managed:
        CHECK(cuMemAllocManaged(&address, buffer.bytes, CU_MEM_ATTACH_GLOBAL));
        break;
      case Memory::pooled:
        CHECK(cuMemAllocAsync(&address, buffer.bytes, streams_[0]));
        CHECK(cuStreamSynchronize(streams_[0]));
        break;
      case Memory::pinned:
        CHECK(cuMemAllocHost(&host, std::size_t{buffer.bytes} * kHalves));
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
      CHECK(cuMemcpyHtoD(address, contents.data(), buffer.bytes));
    } else {
      std::memcpy(host, contents.data(), std::size_t{buffer.bytes} * (buffer.memory == Memory::pinned ? kHalves : 1));
      address = reinterpret_cast<CUdeviceptr>(host);
    }
    last_address_[index] = address;
  }

  void make_pool() {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuMemPoolCreate(&pool_, &props));
  }

  void capture() {
    CUgraph graph = nullptr;
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (const Op& op : program_.graph) launch(op, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&graph_, graph, 0));
  }

  CUdeviceptr at(const Place& drawn) const {
    const Place place = at_step(drawn, phase_);
    const Buffer& buffer = program_.buffers[place.buffer];
    return address_[place.buffer] + place.offset + (buffer.input ? half_ * buffer.bytes : 0);
  }
  bool on_host(const Place& place) const {
    const Memory memory = program_.buffers[place.buffer].memory;
    return memory == Memory::pinned || memory == Memory::pageable;
  }
  static void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

  void write_inputs() {
    if (program_.ending == Ending::none) return;
    half_ = program_.ending == Ending::events ? step_ % kHalves : 0;
    if (program_.ending == Ending::events && step_ >= kHalves)
      CHECK(cuEventSynchronize(events_[program_.events + half_]));
    for (std::uint32_t i = 0; i < address_.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (!buffer.input) continue;
      auto* words = static_cast<unsigned*>(host(at({i, 0})));
      for (std::uint32_t word = 0; word < buffer.bytes / 4; ++word) words[word] = (step_ * 977 + word) * 2654435761u;
    }
  }

  void end_step() {
    if (program_.ending == Ending::synchronize) wait_for_all();
    if (program_.ending == Ending::events) CHECK(cuEventRecord(events_[program_.events + half_], streams_[0]));
    if (program_.swaps) std::swap(address_[0], address_[1]);
    if (program_.extra_every != 0 && program_.streams == 1 && step_ % program_.extra_every == 1)
      CHECK(cuMemsetD8Async(address_[0], static_cast<unsigned char>(step_), 16, streams_[0]));
  }

  void wait_for_all() {
    if (program_.streams == 1) {
      CHECK(cuStreamSynchronize(streams_[0]));
    } else {
      CHECK(cuCtxSynchronize());
    }
  }

  void issue(const Op& op) {
    const CUstream stream = streams_[op.stream];
    switch (op.kind) {
      case OpKind::launch:
        return launch(op, stream);
      case OpKind::copy:
        return copy(op, stream);
      case OpKind::set:
        return set(op, stream);
      case OpKind::alloc:
        return allocate(op.buffer, stream);
      case OpKind::free:
        return release(op, stream);
      case OpKind::graph:
        CHECK(cuGraphLaunch(graph_, stream));
        return;
      case OpKind::record:
        CHECK(cuEventRecord(events_[op.event], stream));
        return;
      case OpKind::wait:
        CHECK(cuStreamWaitEvent(stream, events_[op.event], 0));
        return;
      case OpKind::host_wait:
        CHECK(cuEventSynchronize(events_[op.event]));
        return;
      case OpKind::poll:
        if (const CUresult result = cuEventQuery(events_[op.event]); result != CUDA_ERROR_NOT_READY) CHECK(result);
        return;
      case OpKind::synchronize:
        wait_for_all();
        for (const Place& place : op.places)
          note(host(at(place)), std::min(64u, program_.buffers[place.buffer].bytes - place.offset));
        return;
    }
  }

  void allocate(std::uint32_t index, CUstream stream) {
    const Buffer& buffer = program_.buffers[index];
    if (buffer.memory == Memory::plain) {
      CHECK(cuMemAlloc(&address_[index], buffer.bytes));
    } else if (buffer.memory == Memory::own_pool) {
      CHECK(cuMemAllocFromPoolAsync(&address_[index], buffer.bytes, pool_, stream));
    } else {
      CHECK(cuMemAllocAsync(&address_[index], buffer.bytes, stream));
    }
    last_address_[index] = address_[index];
  }

  void release(const Op& op, CUstream stream) {
    CUdeviceptr& address = address_[op.buffer];
    if (address == 0) return;  // what the step before the first one would have left
    if (op.blocking || program_.buffers[op.buffer].memory == Memory::plain) {
      CHECK(cuMemFree(address));
    } else {
      CHECK(cuMemFreeAsync(address, stream));
    }
    address = 0;  // but last_address_ stays: what is stale leads there
  }

  CUfunction function(Kernel kernel, bool proven) {
    CUfunction& found = functions_[proven ? 1 : 0][static_cast<std::size_t>(kernel)];
    if (found == nullptr) CHECK(cuModuleGetFunction(&found, modules_[proven ? 1 : 0], name_of(kernel)));
    return found;
  }

  void launch(const Op& op, CUstream stream) {
    std::array<CUdeviceptr, 3> p{};
    for (std::size_t i = 0; i < op.places.size(); ++i) p[i] = at(op.places[i]);
    const std::uint32_t elements = count_at(op, phase_);
    auto count = static_cast<int>(elements), stride = static_cast<int>(op.stride);
    // What the host has read so far decides on what follows, as in real programs.
    unsigned salt = op.salt ^ step_ * 0x9e3779b9u ^ static_cast<unsigned>(digest_);
    Job job{};
    Pointers pointers{};
    long to = 0, from = 0;
    const auto go = [&](auto*... parameters) {
      void* arguments[] = {static_cast<void*>(parameters)...};
      // The same as one buffer, by the rules of a C structure.
      alignas(16) char buffer[128] = {};
      std::size_t size = 0;
      const auto put = [&](const auto* parameter) {
        size =
            (size + alignof(decltype(*parameter)) - 1) / alignof(decltype(*parameter)) * alignof(decltype(*parameter));
        std::memcpy(buffer + size, parameter, sizeof *parameter);
        size += sizeof *parameter;
      };
      (put(parameters), ...);
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
      CHECK(cuLaunchKernel(function(op.kernel, op.proven), (elements + 31) / 32, 1, 1, 32, 1, 1, 0, stream,
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

  void copy(const Op& op, CUstream stream) {
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
        CHECK(cuMemcpy2D(&rows));
      } else {
        CHECK(cuMemcpy2DAsync(&rows, stream));
      }
    } else if (op.blocking) {
      CHECK(cuMemcpy(to, from, op.width));
    } else if (to_host) {
      CHECK(cuMemcpyDtoHAsync(host(to), from, op.width, stream));
    } else if (from_host) {
      CHECK(cuMemcpyHtoDAsync(to, host(from), op.width, stream));
    } else if (op.width % 3 == 0) {
      CHECK(cuMemcpyAsync(to, from, op.width, stream));
    } else {
      CHECK(cuMemcpyDtoDAsync(to, from, op.width, stream));
    }
  }

  void set(const Op& op, CUstream stream) {
    const CUdeviceptr to = at(op.places[0]);
    const std::size_t elements = op.width / op.element;
    if (op.height > 1) {
      if (op.element == 1)
        CHECK(cuMemsetD2D8Async(to, op.to_pitch, static_cast<unsigned char>(op.salt), elements, op.height, stream));
      if (op.element == 2)
        CHECK(cuMemsetD2D16Async(to, op.to_pitch, static_cast<unsigned short>(op.salt), elements, op.height, stream));
      if (op.element == 4) CHECK(cuMemsetD2D32Async(to, op.to_pitch, op.salt, elements, op.height, stream));
    } else {
      if (op.element == 1) CHECK(cuMemsetD8Async(to, static_cast<unsigned char>(op.salt), elements, stream));
      if (op.element == 2) CHECK(cuMemsetD16Async(to, static_cast<unsigned short>(op.salt), elements, stream));
      if (op.element == 4) CHECK(cuMemsetD32Async(to, op.salt, elements, stream));
    }
  }

  void note(const void* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      digest_ = (digest_ ^ static_cast<const unsigned char*>(bytes)[i]) * 1099511628211u;
  }

  std::uint64_t finish() {
    CHECK(cuCtxSynchronize());
    for (std::uint32_t i = 0; i < address_.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.memory == Memory::carried && address_[i] != 0) CHECK(cuMemFreeAsync(address_[i], streams_[0]));
      if (buffer.addresses || of_step(buffer.memory)) continue;
      std::vector<unsigned char> contents(buffer.bytes);
      if (on_host({i, 0})) {
        std::memcpy(contents.data(), host(address_[i]), contents.size());
      } else {
        CHECK(cuMemcpyDtoH(contents.data(), address_[i], contents.size()));
      }
      note(contents.data(), contents.size());
      if (buffer.memory == Memory::pooled) CHECK(cuMemFreeAsync(address_[i], streams_[0]));
    }
    CHECK(cuCtxSynchronize());
    return digest_;
  }

  static constexpr std::uint32_t kHalves = 2;

  const Program& program_;
  std::array<CUmodule, 2> modules_{};
  std::array<std::array<CUfunction, static_cast<std::size_t>(Kernel::count)>, 2> functions_{};
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> address_, last_address_;  // by buffer
  std::vector<std::vector<unsigned char>> pageable_;
  CUgraphExec graph_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::uint32_t step_ = 0, phase_ = 0, half_ = 0;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

std::uint64_t run_program(const Program& program) { return Runner(program).run(); }

}  // namespace nimble::oracle
