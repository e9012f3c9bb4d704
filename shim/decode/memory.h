// Allocations: every way in which memory becomes reachable for kernels, and ends.
#pragma once

#include "shim/decode/entry.h"

namespace nimble::shim::decode {

// Common to all: the address is known after the call.
inline void allocated(Call& call, std::uint64_t address) { call.address = address; }

inline void allocation(Call& call, MemoryKind memory, std::uint64_t size) {
  event(call, CallKind::alloc);
  call.memory = memory;
  call.size = size;
}

inline void freed(Call& call, std::uint64_t address) {
  event(call, CallKind::free);
  call.address = address;
}

struct Alloc {
  static void before(Entry, Call& call, CUdeviceptr*, std::size_t bytes) {
    allocation(call, MemoryKind::device, bytes);
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t) { allocated(call, *out); }
};

struct AllocPitch {
  static void before(Entry, Call& call, CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned) {
    allocation(call, MemoryKind::device, 0);
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t* pitch, std::size_t, std::size_t height, unsigned) {
    allocated(call, *out);
    call.size = *pitch * height;
  }
};

struct AllocManaged {
  static void before(Entry, Call& call, CUdeviceptr*, std::size_t bytes, unsigned) {
    allocation(call, MemoryKind::managed, bytes);
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t, unsigned) { allocated(call, *out); }
};

struct AllocHost {
  template <class... Flags>
  static void before(Entry, Call& call, void**, std::size_t bytes, Flags...) {
    allocation(call, MemoryKind::pinned, bytes);
  }
  template <class... Flags>
  static void after(Call& call, void** out, std::size_t, Flags...) {
    allocated(call, address_of(*out));
  }
};

struct HostRegister {
  static void before(Entry, Call& call, void*, std::size_t bytes, unsigned) {
    allocation(call, MemoryKind::registered, bytes);
  }
  static void after(Call& call, void* pointer, std::size_t, unsigned) { allocated(call, address_of(pointer)); }
};

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

struct Free {
  static void before(Entry, Call& call, CUdeviceptr pointer) { freed(call, pointer); }
};

struct FreeHost {
  static void before(Entry, Call& call, void* pointer) { freed(call, address_of(pointer)); }
};

struct Unmap {
  static void before(Entry, Call& call, CUdeviceptr pointer, std::size_t) { freed(call, pointer); }
};

struct AllocAsync {
  static void before(Entry entry, Call& call, CUdeviceptr* out, std::size_t bytes, CUstream stream) {
    if (!out) return;  // the driver will say so
    op(entry, call, CallKind::alloc_async, stream);
    call.memory = MemoryKind::stream_ordered;
    call.size = bytes;
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t, CUstream) { allocated(call, *out); }
  static void answer(const Call& call, CUdeviceptr* out, std::size_t, CUstream) { *out = call.address; }
};

struct AllocFromPool {
  static void before(Entry entry, Call& call, CUdeviceptr* out, std::size_t bytes, CUmemoryPool, CUstream stream) {
    AllocAsync::before(entry, call, out, bytes, stream);
    call.own_pool = true;
  }
  static void after(Call& call, CUdeviceptr* out, std::size_t, CUmemoryPool, CUstream) { allocated(call, *out); }
};

struct FreeAsync {
  static void before(Entry entry, Call& call, CUdeviceptr pointer, CUstream stream) {
    op(entry, call, CallKind::free_async, stream);
    call.address = pointer;
  }
};

// The replayer answers for the allocations that it made.
struct AddressRange {
  static void before(Entry, Call& call, CUdeviceptr*, std::size_t*, CUdeviceptr pointer) {
    call.address_range = true;
    call.address = pointer;
  }
  static void answer(const Call& call, CUdeviceptr* base, std::size_t* size, CUdeviceptr) {
    if (base) *base = call.address;
    if (size) *size = call.size;
  }
};

// Host memory that kernels may reach under a second address: two names for one object.
struct HostAlias {
  static void before(Entry, Call&, CUdeviceptr*, void*, unsigned) {}
  static void after(Call& call, CUdeviceptr* device, void* host, unsigned) {
    if (!device || *device == address_of(host)) return;
    event(call, CallKind::hidden);
    call.note = "host memory mapped at a second address";
  }
};

}  // namespace nimble::shim::decode
