// Allocations: every way in which kernels gain and lose access to memory, and calls that set its attributes.
#pragma once

#include "shim/intercept/decode/access_lists.h"
#include "shim/intercept/decode/op.h"
#include "shim/state/contexts.h"
#include "shim/state/default_pool.h"

namespace nimble::shim::decode {

// Makes nothing that work could reach; but the driver may have no memory for it (CallSink::give_back).
struct TakesMemory {
  template <class... Args>
  static void before(Entry, Call&, Args...) {}
};

// Common to all: the address is known after the call.
inline void allocated(Call& call, std::uint64_t address) { call.memory.address = address; }

inline void allocation(Call& call, MemoryKind memory, std::uint64_t size) {
  event(call, CallKind::alloc);
  call.memory.kind = memory;
  if (!outlives_contexts(memory)) call.context = current_context();
  call.memory.size = size;
}

inline void freed(Call& call, std::uint64_t address, MemoryKind memory) {
  event(call, CallKind::free);
  call.memory.kind = memory;
  call.memory.address = address;
}

// From now on something other than the program's work on this device may reach its memory.
inline void shown(Call& call) {
  event(call, CallKind::hidden);
  call.note = call.symbol;
  call.shown = true;
}

inline bool grants(const CUmemAccessDesc& access) { return access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE; }

// Device memory: its address and size.
struct Alloc {
  template <class Pointer, class Size>
  static void before(Entry, Call& call, Pointer* out, Size bytes) {
    if (!out) return;  // the driver will say so
    allocation(call, MemoryKind::device, bytes);
    call.memory.takes_any_address = sizeof(Pointer) == sizeof(call.memory.address);
  }
  template <class Pointer, class Size>
  static void after(Call& call, Pointer* out, Size) {
    allocated(call, *out);
  }
  template <class Pointer, class Size>
  static void answer(const Call& call, Pointer* out, Size) {
    *out = static_cast<Pointer>(call.memory.address);
  }
};

// Device memory in rows: its address, and the size with the pitch that the driver chose.
struct AllocPitch {
  template <class Pointer, class Size>
  static void before(Entry, Call& call, Pointer*, Size*, Size, Size, unsigned) {
    allocation(call, MemoryKind::device, 0);
  }
  template <class Pointer, class Size>
  static void after(Call& call, Pointer* out, Size* pitch, Size, Size height, unsigned) {
    allocated(call, *out);
    call.memory.size = std::uint64_t{*pitch} * height;
  }
};

// Managed memory: its address and size.
struct AllocManaged {
  static void before(Entry, Call& call, CUdeviceptr*, std::size_t bytes, unsigned) {
    allocation(call, MemoryKind::managed, bytes);
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t, unsigned) { allocated(call, *out); }
};

// Pinned host memory: its address and size.
struct AllocHost {
  template <class Size, class... Flags>
  static void before(Entry, Call& call, void**, Size bytes, Flags...) {
    allocation(call, MemoryKind::pinned, bytes);
  }
  template <class Size, class... Flags>
  static void after(Call& call, void** out, Size, Flags...) {
    allocated(call, address_of(*out));
  }
};

// Host memory that the program pins: its address and size.
struct HostRegister {
  static void before(Entry, Call& call, void*, std::size_t bytes, unsigned) {
    allocation(call, MemoryKind::registered, bytes);
  }
  static void after(Call& call, void* pointer, std::size_t, unsigned) { allocated(call, address_of(pointer)); }
};

// Memory that is mapped into reserved addresses. The same memory may be mapped twice, so all mapped memory counts as
// one object.
struct Map {
  static void before(Entry, Call& call, CUdeviceptr, std::size_t size, std::size_t, CUmemGenericAllocationHandle,
                     unsigned long long) {
    allocation(call, MemoryKind::mapped, size);
  }
  static void after(Call& call, CUdeviceptr pointer, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                    unsigned long long) {
    allocated(call, pointer);
  }
};

// The end of device memory.
struct Free {
  template <class Pointer>
  static void before(Entry, Call& call, Pointer pointer) {
    freed(call, pointer, MemoryKind::device);
  }
};

// The end of a mapping of another process's memory.
struct CloseExternal {
  static void before(Entry, Call& call, CUdeviceptr pointer) { freed(call, pointer, MemoryKind::external); }
};

// The end of pinned host memory.
struct FreeHost {
  static void before(Entry, Call& call, void* pointer) { freed(call, address_of(pointer), MemoryKind::pinned); }
};

// The end of one or more mappings that lie side by side.
struct Unmap {
  static void before(Entry, Call& call, CUdeviceptr pointer, std::size_t bytes) {
    freed(call, pointer, MemoryKind::mapped);
    call.memory.size = bytes;
  }
};

// Memory that something else reaches as well. Its address and size; from then on no kernel is taken to reach memory
// through its parameters alone, and replay stands aside.
struct External {
  template <class Pointer, class... Rest>
  static void before(Entry, Call& call, Pointer*, Rest...) {
    allocation(call, MemoryKind::external, 0);
    call.shown = true;
  }
  // From another process: the driver knows the size.
  static void after(Call& call, CUdeviceptr* out, CUipcMemHandle, unsigned) { of_unknown_size(call, *out); }
  static void after(Call& call, CUdeviceptr* out, CUmemoryPool, CUmemPoolPtrExportData*) {
    of_unknown_size(call, *out);
  }
  // From another API.
  static void after(Call& call, CUdeviceptr* out, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
    allocated(call, *out);
    call.memory.size = buffer->size;
  }
  template <class Pointer, class Size, class... Rest>
  static void after(Call& call, Pointer* out, Size* size, Rest...) {
    allocated(call, out ? *out : 0);
    call.memory.size = size ? *size : 0;
  }

 private:
  static void of_unknown_size(Call& call, CUdeviceptr pointer);
};

// Memory in stream order: its stream, address and size.
struct AllocAsync {
  static void before(Entry entry, Call& call, CUdeviceptr* out, std::size_t bytes, CUstream stream) {
    if (!out) return;  // the driver will say so
    op(entry, call, CallKind::alloc_async, stream);
    call.memory.kind = MemoryKind::stream_ordered;
    call.memory.size = bytes;
    call.memory.own_pool = !default_pool_is_plain();
    call.memory.takes_any_address = true;
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t, CUstream) { allocated(call, *out); }
  static void answer(const Call& call, CUdeviceptr* out, std::size_t, CUstream) { *out = call.memory.address; }
};

// Memory in stream order from one of the program's pools: its stream, address and size.
struct AllocFromPool {
  static void before(Entry entry, Call& call, CUdeviceptr* out, std::size_t bytes, CUmemoryPool, CUstream stream) {
    AllocAsync::before(entry, call, out, bytes, stream);
    call.memory.own_pool = call.memory.names_pool = true;
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t, CUmemoryPool, CUstream) { allocated(call, *out); }
  static void answer(const Call& call, CUdeviceptr* out, std::size_t, CUmemoryPool, CUstream) {
    *out = call.memory.address;
  }
};

// The end of memory in stream order: its stream and address.
struct FreeAsync {
  static void before(Entry entry, Call& call, CUdeviceptr pointer, CUstream stream) {
    op(entry, call, CallKind::free_async, stream);
    call.memory.address = pointer;
  }
};

// Sets the default pool. From then on its allocations count as from a pool of the program, and none is served from a
// plan.
struct DefaultPool {
  template <class... Args>
  static void before(Entry, Call&, Args...) {}
  template <class... Args>
  static void after(Call&, Args...) {
    default_pool_changed();
  }
};

// Who may reach a pool's memory: from then on allocations of the default pool count as from a pool of the program.
// Unless the call only takes access away, something else may reach the program's memory, and replay stands aside.
struct PoolAccess {
  static void before(Entry, Call& call, CUmemoryPool pool, const CUmemAccessDesc* all, std::size_t count) {
    for (std::size_t i = 0; all && i < count; ++i)
      if (grants(all[i]) && !is_home_of(pool, all[i].location)) return shown(call);
  }
  static void after(Call&, CUmemoryPool, const CUmemAccessDesc*, std::size_t) { default_pool_changed(); }

 private:
  // Whether the pool is known to be this device's.
  static bool is_home_of(CUmemoryPool pool, const CUmemLocation& location);
};

// A pool that the program made, or the driver's. If it is not of device memory, the host reaches what is
// allocated from it: something else may reach the program's memory, and replay stands aside.
struct Pool {
  static void before(Entry, Call& call, CUmemoryPool*, const CUmemPoolProps* props) {
    if (props) look(call, props->location, props->allocType);
  }
  static void before(Entry, Call& call, CUmemoryPool*, CUmemLocation* location, CUmemAllocationType type) {
    if (location) look(call, *location, type);
  }

 private:
  static void look(Call& call, const CUmemLocation& location, CUmemAllocationType type) {
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) shown(call);
  }
};

// Who may reach mapped memory. If that is more than its own device, something else may reach the program's memory, and
// replay stands aside. What Nimble has mapped does not count.
struct MapAccess {
  static void before(Entry, Call& call, CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* all,
                     std::size_t count) {
    call.asked.question = Question::physical;
    call.memory.address = pointer;
    for (std::size_t i = 0; all && i < count; ++i)
      if (grants(all[i]) && !is_home_of(pointer, bytes, all[i].location)) return shown(call);
  }

 private:
  // Whether all that is mapped there is known to be at this place.
  static bool is_home_of(CUdeviceptr pointer, std::size_t bytes, const CUmemLocation& location);
  static bool is_at(CUdeviceptr pointer, const CUmemLocation& location);
};

// Host memory under a second address for kernels: two names for one object, after which no kernel is taken to reach
// memory through its parameters alone.
struct HostAlias {
  template <class Pointer>
  static void before(Entry, Call&, Pointer*, void*, unsigned) {}
  template <class Pointer>
  static void after(Call& call, Pointer* device, void* host, unsigned) {
    if (!device || *device == address_of(host)) return;
    event(call, CallKind::hidden);
    call.note = "host memory mapped at a second address";
  }
};

// A hint about managed memory, in stream order: the range that it moves.
struct Prefetch {
  template <class... Where>
  static void before(Entry entry, Call& call, CUdeviceptr pointer, std::size_t bytes, Where... where) {
    Opaque::before(entry, call, where...);
    call.arguments = {reinterpret_cast<const void*>(pointer), reinterpret_cast<const void*>(bytes)};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      touch(list, address_of(op.arguments[0]), address_of(op.arguments[1]), kReadsAndWrites);
      return true;
    };
  }
};

// Hints about managed memory in stream order, or that its content may be discarded: all ranges, as if read and written.
struct RangeBatch {
  template <class... Rest>
  static void before(Entry entry, Call& call, CUdeviceptr* pointers, std::size_t* sizes, std::size_t count,
                     Rest... rest) {
    Opaque::before(entry, call, rest...);
    call.arguments = {pointers, sizes, reinterpret_cast<const void*>(count)};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      const auto* const at = static_cast<const CUdeviceptr*>(op.arguments[0]);
      const auto* const bytes = static_cast<const std::size_t*>(op.arguments[1]);
      for (std::uint64_t i = 0; i < address_of(op.arguments[2]); ++i) touch(list, at[i], bytes[i], kReadsAndWrites);
      return true;
    };
  }
};

// Attaches managed memory to a stream: the allocation, as if read and written.
struct Attach {
  static void before(Entry entry, Call& call, CUstream stream, CUdeviceptr pointer, std::size_t, unsigned) {
    Opaque::before(entry, call, stream);
    call.arguments = {reinterpret_cast<const void*>(pointer)};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      touch_whole(list, address_of(op.arguments[0]), kReadsAndWrites);
      return true;
    };
  }
};

// Decompression by the device: what each operation reads. How much it writes depends on the data, so the destinations
// count as written whole.
struct Decompress {
  static void before(Entry entry, Call& call, CUmemDecompressParams* params, std::size_t count, unsigned, std::size_t*,
                     CUstream stream) {
    Opaque::before(entry, call, stream);
    call.arguments = {params, reinterpret_cast<const void*>(count)};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      const auto* const all = static_cast<const CUmemDecompressParams*>(op.arguments[0]);
      for (std::uint64_t i = 0; i < address_of(op.arguments[1]); ++i) {
        touch(list, address_of(all[i].src), all[i].srcNumBytes, kReads);
        touch_whole(list, address_of(all[i].dst), kReadsAndWrites);
        if (all[i].dstActBytes) touch(list, address_of(all[i].dstActBytes), sizeof(cuuint32_t), kWrites);
      }
      return true;
    };
  }
};

}  // namespace nimble::shim::decode
