#include "replayer/bundle/run/live_ops.h"

#include <algorithm>
#include <cstring>

#include "analyzer/base/errors.h"
#include "nimble/internal/schedule.h"

namespace nimble::bundle {

LiveOps::Made::~Made() {
  for (const CUevent event : events) driver.api().cuEventDestroy_(event);
  for (const CUstream stream : streams) driver.cuStreamDestroy_(stream);
}

LiveOps::LiveOps(LiveDriver& driver, const BundleFiles& files, const RecordedStep& step, const Payloads& payloads,
                 const Placement& placement, const std::vector<CUmodule>& modules)
    : driver_(driver),
      files_(files),
      step_(step),
      payloads_(payloads),
      placement_(placement),
      modules_(modules),
      made_(driver) {
  for (std::uint32_t i = 0; i < step.ops(); ++i) {
    const TraceCall& recorded = step.op(i);
    Op& op = *ops_.emplace_back(std::make_unique<Op>());
    Call& call = op.call;
    call.kind = recorded.kind;
    call.traced = call.has_stream = true;
    call.plain = recorded.plain;
    call.host = recorded.synchronous ? HostEffect::observe : HostEffect::async;
    if (streams_.count(recorded.stream) == 0) {
      streams_[recorded.stream] = make_stream(step.trace().streams[recorded.stream]);
      stream_order_.push_back(recorded.stream);
    }
    call.stream.handle = streams_[recorded.stream];
    switch (recorded.kind) {
      case CallKind::launch:
        make_launch(i, recorded, op);
        break;
      case CallKind::copy:
        make_copy(i, recorded, op);
        break;
      case CallKind::set:
        if (!placement.holds(recorded.dst.address, extent_of(recorded.dst, recorded)))
          fail(i, "sets memory that the bundle does not hold");
        call.transfer.dst = {placement.here(recorded.dst.address), recorded.dst.pitch};
        call.transfer.width = recorded.width;
        call.transfer.height = recorded.height;
        call.transfer.value = recorded.value;
        call.transfer.element = recorded.element;
        break;
      case CallKind::event_record:
        if (CUevent& event = events_[recorded.event]; !event) event = make_event();
        call.event = events_[recorded.event];
        break;
      case CallKind::event_wait:
        call.event = recorded_event(recorded.event);
        // One of an earlier step: long past, but the call needs an event.
        if (!call.event) call.event = make_event();
        break;
      default:
        call.memory.address = placement.here(recorded.address);
        call.memory.size = recorded.size;
        call.memory.kind = MemoryKind::stream_ordered;
        call.memory.own_pool = recorded.own_pool;
        break;
    }
  }
}

void LiveOps::fail(std::uint32_t index, const char* why) const {
  throw analyzer::InputError(files_.trace_path(), 0, "op " + std::to_string(index), why);
}

CUevent LiveOps::make_event() {
  CUevent event = nullptr;
  LiveDriver::check(driver_.api().cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING), "for an event");
  made_.events.push_back(event);
  return event;
}

CUstream LiveOps::make_stream(const TraceStream& stream) {
  if (stream.kind == StreamKind::legacy) return CU_STREAM_LEGACY;
  if (stream.kind == StreamKind::per_thread) return CU_STREAM_PER_THREAD;
  CUstream made = nullptr;
  LiveDriver::check(driver_.cuStreamCreate_(
                        &made, stream.kind == StreamKind::non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT),
                    "for a stream");
  made_.streams.push_back(made);
  return made;
}

CUevent LiveOps::recorded_event(std::uint32_t trace_event) const {
  const auto found = events_.find(trace_event);
  return found == events_.end() ? nullptr : found->second;
}

LiveOps::Function& LiveOps::function(std::uint32_t index, const TraceCall& recorded) {
  const std::uint32_t image = files_.bundle().images_of_ops[index];
  Function& function = functions_[std::uint64_t{image} << 32 | recorded.function];
  if (function.handle) return function;
  const TraceFunction& known = step_.trace().functions[recorded.function];
  LiveDriver::check(driver_.cuModuleGetFunction_(&function.handle, modules_[image], known.name.c_str()),
                    ("for the kernel " + known.name).c_str());
  FunctionInfo info;
  info.name = known.name;
  info.params = known.params;
  for (const ParamLayout& param : *known.params)
    info.param_bytes = std::max(info.param_bytes, param.offset + param.size);
  info.self_contained = known.self_contained;
  info.proof = known.proof;
  info.code = known.code;
  if (info.proof)
    for (ProvenGlobal& global : info.proof->globals) global.address = placement_.here(global.address);
  driver_.know(function.handle, std::move(info));
  return function;
}

void LiveOps::make_launch(std::uint32_t index, const TraceCall& recorded, Op& op) {
  Call& call = op.call;
  Function& kernel = function(index, recorded);
  call.launch.function = kernel.handle;
  call.launch.grid = recorded.grid;
  call.launch.block = recorded.block;
  call.launch.shared_bytes = recorded.shared_bytes;
  call.launch.cooperative = recorded.cooperative;
  if (call.launch.cooperative) call.plain = false;
  // How much a kernel gets without opting in depends on its static share; opting in for as much as it had is never
  // wrong.
  if (recorded.shared_bytes > kernel.shared_bytes) {
    kernel.shared_bytes = recorded.shared_bytes;
    LiveDriver::check(driver_.cuFuncSetAttribute_(call.launch.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                  static_cast<int>(recorded.shared_bytes)),
                      ("for the shared memory of " + step_.describe(index)).c_str());
  }
  op.params = recorded.params;
  check_objects(index);
  move_params(recorded, op, [this](std::uint64_t word) { return placement_.word_here(word); });
}

// Checks that a kernel's pointers lead to memory of the step: to whole objects, since the extent is unknown.
void LiveOps::check_objects(std::uint32_t index) const {
  for (const analyzer::PointerWord& pointer : step_.pointers(index)) {
    const analyzer::Object& object = step_.object(pointer.object);
    if (pointer.at < analyzer::kAtGlobals && !placement_.holds(object.base, object.size))
      fail(index, "gets an address of memory that the bundle does not hold");
  }
}

void LiveOps::move_params(const TraceCall& recorded, Op& op,
                          const std::function<std::uint64_t(std::uint64_t)>& move) const {
  op.arguments.clear();
  for (const ParamLayout& param : *step_.trace().functions[recorded.function].params) {
    for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, op.params.data() + at, sizeof word);
      word = move(word);
      std::memcpy(op.params.data() + at, &word, sizeof word);
    }
    op.arguments.push_back(op.params.data() + param.offset);
  }
  op.call.launch.kernel_params = op.arguments.data();
}

std::unique_ptr<LiveOps::Op> LiveOps::moved(std::uint32_t index,
                                            const std::function<std::uint64_t(std::uint64_t)>& move) const {
  auto op = std::make_unique<Op>(*ops_[index]);
  if (op->call.kind == CallKind::launch) move_params(step_.op(index), *op, move);
  if (!op->own_result) op->call.transfer.dst.address = move(op->call.transfer.dst.address);
  if (!op->own_source) op->call.transfer.src.address = move(op->call.transfer.src.address);
  return op;
}

// Where one side of a copy is here: in the step's memory, or in our buffer in place of the program's.
std::uint64_t LiveOps::side(std::uint32_t index, std::uint64_t address, std::uint64_t bytes,
                            const BundlePayload* payload, std::shared_ptr<std::vector<std::uint8_t>>& own) const {
  if (placement_.holds(address, bytes)) return placement_.here(address);
  if (!payload) fail(index, "copies from or to memory that the bundle does not hold");
  own = std::make_shared<std::vector<std::uint8_t>>(bytes);
  return reinterpret_cast<std::uint64_t>(own->data());
}

void LiveOps::make_copy(std::uint32_t index, const TraceCall& recorded, Op& op) {
  Call& call = op.call;
  call.transfer.width = recorded.width;
  call.transfer.height = recorded.height;
  const std::uint64_t to = extent_of(recorded.dst, recorded), from = extent_of(recorded.src, recorded);
  if (to == 0) return;
  call.transfer.dst = {side(index, recorded.dst.address, to, payloads_.result(index), op.own_result),
                       recorded.dst.pitch};
  call.transfer.src = {side(index, recorded.src.address, from, payloads_.source(index), op.own_source),
                       recorded.src.pitch};
  call.transfer.host_source = op.own_source != nullptr;
}

CUresult LiveOps::submit_launch(const Call::Launch& launch, CUstream stream) {
  const auto& [gx, gy, gz] = launch.grid;
  const auto& [bx, by, bz] = launch.block;
  if (launch.cooperative)
    return driver_.cuLaunchCooperativeKernel_(launch.function, gx, gy, gz, bx, by, bz, launch.shared_bytes, stream,
                                              launch.kernel_params);
  return driver_.api().cuLaunchKernel_(launch.function, gx, gy, gz, bx, by, bz, launch.shared_bytes, stream,
                                       launch.kernel_params, nullptr);
}

CUresult LiveOps::submit_copy(const Op& op, CUstream stream) {
  const Call::Transfer& transfer = op.call.transfer;
  if (transfer.width == 0 || transfer.height == 0) return CUDA_SUCCESS;
  if (transfer.height == 1) {
    if (op.own_source && !op.own_result)
      return driver_.cuMemcpyHtoDAsync_(transfer.dst.address, op.own_source->data(), transfer.width, stream);
    if (op.own_result && !op.own_source)
      return driver_.cuMemcpyDtoHAsync_(op.own_result->data(), transfer.src.address, transfer.width, stream);
    return driver_.api().cuMemcpyAsync_(transfer.dst.address, transfer.src.address, transfer.width, stream);
  }
  const auto memory_type = [](bool own) { return own ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED; };
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = memory_type(op.own_source != nullptr);
  copy.dstMemoryType = memory_type(op.own_result != nullptr);
  copy.srcDevice = transfer.src.address;
  copy.srcHost = reinterpret_cast<const void*>(transfer.src.address);
  copy.dstDevice = transfer.dst.address;
  copy.dstHost = reinterpret_cast<void*>(transfer.dst.address);
  copy.srcPitch = transfer.src.pitch;
  copy.dstPitch = transfer.dst.pitch;
  copy.WidthInBytes = transfer.width;
  copy.Height = transfer.height;
  return driver_.api().cuMemcpy2DAsync_(&copy, stream);
}

CUresult LiveOps::submit_set(const Call::Transfer& transfer, CUstream stream) {
  if (transfer.width == 0 || transfer.height == 0) return CUDA_SUCCESS;
  const std::size_t width = transfer.width / transfer.element, height = transfer.height;
  const CUdeviceptr at = transfer.dst.address;
  const std::size_t pitch = transfer.dst.pitch;
  const DriverApi& api = driver_.api();
  const auto value16 = static_cast<unsigned short>(transfer.value);
  const auto value8 = static_cast<unsigned char>(transfer.value);
  const bool flat = height == 1;
  if (transfer.element == 1)
    return flat ? api.cuMemsetD8Async_(at, value8, width, stream)
                : api.cuMemsetD2D8Async_(at, pitch, value8, width, height, stream);
  if (transfer.element == 2)
    return flat ? api.cuMemsetD16Async_(at, value16, width, stream)
                : api.cuMemsetD2D16Async_(at, pitch, value16, width, height, stream);
  return flat ? api.cuMemsetD32Async_(at, transfer.value, width, stream)
              : api.cuMemsetD2D32Async_(at, pitch, transfer.value, width, height, stream);
}

CUresult LiveOps::submit(const Op& op, CUstream stream) {
  const Call& call = op.call;
  CUresult result = CUDA_SUCCESS;
  switch (call.kind) {
    case CallKind::launch:
      result = submit_launch(call.launch, stream);
      break;
    case CallKind::copy:
      result = submit_copy(op, stream);
      break;
    case CallKind::set:
      result = submit_set(call.transfer, stream);
      break;
    case CallKind::event_record:
      result = driver_.api().cuEventRecord_(call.event, stream);
      break;
    case CallKind::event_wait:
      result = driver_.api().cuStreamWaitEvent_(stream, call.event, 0);
      break;
    default:
      break;
  }
  if (result == CUDA_SUCCESS && call.synchronous() && call.kind != CallKind::alloc_async)
    result = driver_.api().cuStreamSynchronize_(stream);
  return result;
}

}  // namespace nimble::bundle
