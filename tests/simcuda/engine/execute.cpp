// See execute.h.
#include "tests/simcuda/engine/execute.h"

#include <algorithm>
#include <cstring>

#include "tests/simcuda/driver/driver.h"
#include "tests/simcuda/engine/device_fault.h"
#include "tests/simcuda/engine/op_failure.h"

namespace simcuda {
namespace {

// Freed memory of up to this size is overwritten in an adversarial order, so that a late use shows.
constexpr std::uint64_t kPoisonBytes = 1 << 20;

Tracking::Actor actor_of(const Op& op) {
  return {op.number, op.work.name, op.stream_id, op.chain, op.tick, op.clock, op.caller};
}

std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

void fault(Op& op, std::uint64_t address, bool write) {
  driver().tracking.illegal(actor_of(op), address, write);
  op.context->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

// Of what a kernel touched, what lies in memory of the device; the rest is its own stack, parameters and thread
// indices.
void keep_device_memory(const Op& op, std::vector<SimcudaRange>& ranges, bool write) {
  Driver& d = driver();
  std::vector<SimcudaRange> kept;
  for (const SimcudaRange& range : ranges) {
    std::uint64_t address = range.begin;
    while (address < range.end) {
      Block* block = d.memory.find(address);
      if (block == nullptr) {
        if (d.memory.on_device(address)) d.tracking.illegal(actor_of(op), address, write);
        const auto next = d.memory.blocks().upper_bound(address);
        address = next == d.memory.blocks().end() ? range.end : next->first;
        continue;
      }
      const std::uint64_t end = std::min(range.end, block->base + block->live_bytes);
      if (block->live && address < end) {
        kept.push_back({address, end});
        address = end;
      } else {
        d.tracking.illegal(actor_of(op), address, write);
        address = block->base + std::max<std::uint64_t>(block->capacity, 1);
      }
    }
  }
  ranges = std::move(kept);
}

void run_kernel(Op& op) {
  Driver& d = driver();
  const Launch& launch = op.work.launch;
  const SimDim grid{launch.grid.x, launch.grid.y, launch.grid.z};
  const SimDim block{launch.block.x, launch.block.y, launch.block.z};
  const bool record = d.tracking.on() && launch.code->instrumented;
  if (record) d.tracking.recorder.begin();
  launch.code->kernel.run(op.work.parameters.data(), grid, block, 0, launch.grid.volume());
  if (!d.tracking.on()) return;
  Ranges ranges;
  if (record) {
    ranges = d.tracking.recorder.finish();
    keep_device_memory(op, ranges.reads, false);
    keep_device_memory(op, ranges.writes, true);
  } else {
    ranges.exact = false;
  }
  d.tracking.executed(actor_of(op), std::move(ranges));
}

// Visits each row of a box as (address, bytes); rows without a gap between them count as one.
template <typename Visit>
bool each_row(std::uint64_t base, std::size_t width, std::size_t height, std::size_t depth, std::size_t pitch,
              std::size_t slice, Visit visit) {
  if (width == 0 || height == 0 || depth == 0) return true;
  if (pitch == width || height == 1) {
    const std::size_t plane = height == 1 ? width : width * height;
    if (depth == 1 || slice == plane) return visit(base, plane * depth);
    for (std::size_t z = 0; z < depth; ++z) {
      if (!visit(base + z * slice, plane)) return false;
    }
    return true;
  }
  for (std::size_t z = 0; z < depth; ++z) {
    for (std::size_t y = 0; y < height; ++y) {
      if (!visit(base + z * slice + y * pitch, width)) return false;
    }
  }
  return true;
}

void run_copy(Op& op) {
  Driver& d = driver();
  const Copy& copy = op.work.copy;
  Ranges ranges;
  const auto check = [&](bool write) {
    return [&, write](std::uint64_t address, std::size_t bytes) {
      std::uint64_t where = 0;
      if (!d.memory.accessible(address, bytes, write ? copy.host_destination : copy.host_source, &where)) {
        fault(op, where, write);
        return false;
      }
      if (d.tracking.on()) write ? ranges.write(address, bytes) : ranges.read(address, bytes);
      return true;
    };
  };
  if (!copy.staged &&
      !each_row(copy.source, copy.width, copy.height, copy.depth, copy.source_pitch, copy.source_slice, check(false))) {
    return;
  }
  if (!each_row(copy.destination, copy.width, copy.height, copy.depth, copy.destination_pitch, copy.destination_slice,
                check(true))) {
    return;
  }
  copy_box(copy, copy.staged ? op.staging.data() : at(copy.source));
  if (d.tracking.on()) d.tracking.executed(actor_of(op), std::move(ranges));
}

void run_set(Op& op) {
  Driver& d = driver();
  const Set& set = op.work.set;
  Ranges ranges;
  const std::size_t row = set.width * set.element_bytes;
  const bool fine =
      each_row(set.destination, row, set.height, 1, set.pitch, 0, [&](std::uint64_t address, std::size_t bytes) {
        std::uint64_t where = 0;
        if (!d.memory.accessible(address, bytes, false, &where)) {
          fault(op, where, true);
          return false;
        }
        if (d.tracking.on()) ranges.write(address, bytes);
        if (set.element_bytes == 1) {
          std::memset(at(address), static_cast<int>(set.value), bytes);
        } else if (set.element_bytes == 2) {
          std::fill_n(reinterpret_cast<std::uint16_t*>(at(address)), bytes / 2, static_cast<std::uint16_t>(set.value));
        } else {
          std::fill_n(reinterpret_cast<std::uint32_t*>(at(address)), bytes / 4, set.value);
        }
        return true;
      });
  if (fine && d.tracking.on()) d.tracking.executed(actor_of(op), std::move(ranges));
}

void run_host_call(Op& op) {
  Driver& d = driver();
  if (d.tracking.on()) {
    Ranges ranges;
    ranges.exact = false;
    d.tracking.executed(actor_of(op), std::move(ranges));
  }
  const HostCall host = op.work.host;
  HostFunctionScope unlocked;
  if (host.function != nullptr) {
    host.function(host.data);
  } else {
    host.callback(host.stream, CUDA_SUCCESS, host.data);
  }
}

void run_lifetime(Op& op) {
  Driver& d = driver();
  const MemoryStep& step = op.work.memory;
  const bool alloc = op.work.kind == WorkKind::kAlloc;
  step.block->live = alloc;
  if (alloc) step.block->live_bytes = step.bytes;
  if (d.tracking.races)
    d.tracking.lifetime(actor_of(op), {step.block->base, step.block->base + step.block->live_bytes});
  if (!alloc && d.engine.adversarial() && step.block->live_bytes <= kPoisonBytes) {
    std::memset(at(step.block->base), 0xff, step.block->live_bytes);
  }
}

void run_write_value(Op& op) {
  Driver& d = driver();
  const ValueStep& value = op.work.value;
  std::uint64_t where = 0;
  if (!d.memory.accessible(value.address, value.bytes, false, &where)) {
    fault(op, where, true);
    return;
  }
  std::memcpy(at(value.address), &value.value, value.bytes);  // little-endian, as the device is
  if (d.tracking.on()) {
    Ranges ranges;
    ranges.write(value.address, value.bytes);
    d.tracking.executed(actor_of(op), std::move(ranges));
  }
}

// What touches memory.
void run_work(Op& op) {
  switch (op.work.kind) {
    case WorkKind::kKernel:
      return run_kernel(op);
    case WorkKind::kCopy:
      return run_copy(op);
    case WorkKind::kSet:
      return run_set(op);
    case WorkKind::kWriteValue:
      return run_write_value(op);
    default:
      return;
  }
}

}  // namespace

bool value_arrived(const ValueStep& value) {
  std::uint64_t seen = 0, where = 0;
  if (!driver().memory.accessible(value.address, value.bytes, false, &where)) return false;
  if (value.bytes == 4) {
    // Written by the program while it waits, so read afresh each time.
    seen = *reinterpret_cast<volatile std::uint32_t*>(value.address);
  } else {
    seen = *reinterpret_cast<volatile std::uint64_t*>(value.address);
  }
  switch (value.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return value.bytes == 4 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(seen - value.value)) >= 0
                              : static_cast<std::int64_t>(seen - value.value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == value.value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & value.value) != 0;
    default: {
      const std::uint64_t mask = value.bytes == 4 ? 0xffffffff : ~std::uint64_t{0};
      return (~(seen | value.value) & mask) != 0;
    }
  }
}

nimble::CopyDirection copy_direction(const Work& work) {
  if (work.kind != WorkKind::kCopy) return nimble::CopyDirection::kDeviceToDevice;
  Memory& memory = driver().memory;
  const auto on_device = [&](std::uint64_t address) { return memory.on_device(address); };
  if (work.copy.staged) return nimble::CopyDirection::kPageable;
  const bool to = on_device(work.copy.destination), from = on_device(work.copy.source);
  if (to && from) return nimble::CopyDirection::kDeviceToDevice;
  if (memory.find(to ? work.copy.source : work.copy.destination) == nullptr) return nimble::CopyDirection::kPageable;
  return to ? nimble::CopyDirection::kHostToDevice : nimble::CopyDirection::kDeviceToHost;
}

void copy_box(const Copy& copy, const std::byte* source) {
  for (std::size_t z = 0; z < copy.depth; ++z) {
    for (std::size_t y = 0; y < copy.height; ++y) {
      std::memmove(at(copy.destination + z * copy.destination_slice + y * copy.destination_pitch),
                   source + z * copy.source_slice + y * copy.source_pitch, copy.width);
    }
  }
}

void execute(Op& op) {
  const WorkKind kind = op.work.kind;
  if (kind == WorkKind::kAlloc || kind == WorkKind::kFree) return run_lifetime(op);
  if (op.context->fault != CUDA_SUCCESS) {
    // Nothing runs after a fault; but callbacks are told.
    if (kind == WorkKind::kHost && op.work.host.callback != nullptr) {
      const HostCall host = op.work.host;
      const CUresult result = op.context->fault;
      HostFunctionScope unlocked;
      host.callback(host.stream, result, host.data);
    }
    return;
  }
  if (faults(op)) return;
  if (kind == WorkKind::kHost) return run_host_call(op);
  DeviceFault seen;
  if (runs_without_fault([&] { run_work(op); }, seen)) return;
  driver().tracking.recorder.finish();
  fault(op, seen.address, seen.write);
}

}  // namespace simcuda
