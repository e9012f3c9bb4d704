// Queries about memory. For memory that Nimble provides, the driver knows only the block that it lies in: an
// allocation's own attributes come from the sink, the rest from the driver (nimble/internal/answers.def).
//
// Each has, besides before(), a reply(call, known, driver, args...): what the program gets. `known` is the sink's
// answer, `driver` what the call would have reached.
#pragma once

#include <cstring>

#include "shim/intercept/decode/memory.h"
#include "shim/intercept/decode/op.h"
#include "shim/intercept/decode/stream.h"

namespace nimble::shim::decode {

// No memory begins this low: the driver answers as for released memory.
inline constexpr CUdeviceptr kNoMemory = 4096;

inline void ask_about(Call& call, std::uint64_t address) {
  call.asked.question = Question::memory;
  call.memory.address = address;
}

// Puts the allocation's own attributes into the driver's answer.
void fill_in(const Call& call, CUpointer_attribute attribute, void* data);

// Asks for the allocation that holds an address: the replayer answers for those that it made.
struct AddressRange {
  template <class Pointer, class Size>
  static void before(Entry, Call& call, Pointer*, Size*, Pointer pointer) {
    ask_about(call, pointer);
  }
  template <class Driver, class Pointer, class Size>
  static CUresult reply(const Call& call, CUresult known, Driver driver, Pointer* base, Size* size, Pointer pointer) {
    const bool none = known == CUDA_ERROR_NOT_FOUND;
    if (known != CUDA_SUCCESS && !none) return known;
    const CUresult result = driver(base, size, none ? static_cast<Pointer>(kNoMemory) : pointer);
    if (result != CUDA_SUCCESS || none) return result;
    if (base) *base = static_cast<Pointer>(call.memory.address);
    if (size) *size = static_cast<Size>(call.memory.size);
    return CUDA_SUCCESS;
  }
};

// Asks about the allocation that holds an address. If it asks for P2P tokens, a device of another kind may reach the
// memory from then on.
struct PointerAttribute {
  static void before(Entry, Call& call, void*, CUpointer_attribute attribute, CUdeviceptr pointer) {
    ask_about(call, pointer);
    asks_for(call, attribute);
  }
  template <class Driver>
  static CUresult reply(const Call& call, CUresult known, Driver driver, void* data, CUpointer_attribute attribute,
                        CUdeviceptr pointer) {
    if (known == CUDA_ERROR_NOT_FOUND) return driver(data, attribute, kNoMemory);
    // A graph's memory has none.
    if (call.asked.of_capture && attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = known == CUDA_SUCCESS ? driver(data, attribute, pointer) : known;
    if (result == CUDA_SUCCESS) fill_in(call, attribute, data);
    return result;
  }
  static void before(Entry, Call& call, unsigned count, CUpointer_attribute* attributes, void** data,
                     CUdeviceptr pointer) {
    ask_about(call, pointer);
    for (unsigned i = 0; attributes && data && i < count; ++i) asks_for(call, attributes[i]);
  }
  template <class Driver>
  static CUresult reply(const Call& call, CUresult known, Driver driver, unsigned count,
                        CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
    const bool none = known == CUDA_ERROR_NOT_FOUND;
    if (known != CUDA_SUCCESS && !none) return known;
    const CUresult result = driver(count, attributes, data, none ? kNoMemory : pointer);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
      if (!none) fill_in(call, attributes[i], data[i]);
      // For unknown memory, which may be the host's, this call returns the address itself.
      if (none && data[i] && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        *static_cast<CUdeviceptr*>(data[i]) = pointer;
    }
    return result;
  }

 private:
  static void asks_for(Call& call, CUpointer_attribute attribute) {
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID) call.asked.id = true;
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) shown(call);
  }
};

// Sets whether copies of the allocation that holds an address are synchronous. Programs ask for that when a device of
// another kind reaches the memory: from then on something else may.
struct PointerSetting {
  static void before(Entry, Call& call, const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return;  // the driver will say so
    ask_about(call, pointer);
    call.asked.sets = true;
    std::memcpy(&call.transfer.value, value, sizeof(unsigned));
    if (call.transfer.value != 0) shown(call);
  }
  template <class Driver>
  static CUresult reply(const Call& call, CUresult known, Driver driver, const void*, CUpointer_attribute attribute,
                        CUdeviceptr pointer) {
    if (known != CUDA_SUCCESS && known != CUDA_ERROR_NOT_FOUND) return known;
    const unsigned value = call.transfer.value;
    const CUresult result = driver(&value, attribute, known == CUDA_SUCCESS ? pointer : kNoMemory);
    // The driver refuses this for mapped memory, which a capture's may be: Nimble waits for these copies
    // (CaptureAllocator).
    return call.asked.of_capture && result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
  }
};

// Asks how a device may reach the memory at an address.
struct MemoryAccess {
  static void before(Entry, Call& call, unsigned long long*, const CUmemLocation*, CUdeviceptr pointer) {
    ask_about(call, pointer);
  }
  template <class Driver>
  static CUresult reply(const Call& call, CUresult known, Driver driver, unsigned long long* flags,
                        const CUmemLocation* location, CUdeviceptr pointer) {
    if (known != CUDA_SUCCESS && known != CUDA_ERROR_NOT_FOUND) return known;
    const CUresult result = driver(flags, location, known == CUDA_SUCCESS ? pointer : kNoMemory);
    // Only mapped memory has access flags, and a graph's is not mapped (tests/fidelity/memory_answers.txt).
    if (result == CUDA_SUCCESS && call.asked.of_capture && flags) *flags = 0;
    return result;
  }
};

// Asks for a handle by which another process, or another device, reaches memory. Its holder can see the program's
// progress, so replay stands aside.
struct MemoryHandle {
  template <class Out, class... Rest>
  static void before(Entry entry, Call& call, Out* out, CUdeviceptr pointer, Rest... rest) {
    Hidden::before(entry, call, out, pointer, rest...);
    call.asked.question = Question::handle;
    call.memory.address = pointer;
  }
};

// Likewise for a range.
struct RangeHandle {
  static void before(Entry entry, Call& call, void* handle, CUdeviceptr pointer, std::size_t bytes,
                     CUmemRangeHandleType type, unsigned long long flags) {
    MemoryHandle::before(entry, call, handle, pointer, bytes, type, flags);
    call.memory.size = bytes;
  }
};

// Asks for the physical memory that is mapped at an address.
struct PhysicalHandle {
  static void before(Entry, Call& call, CUmemGenericAllocationHandle*, void* pointer) {
    call.asked.question = Question::physical;
    call.memory.address = reinterpret_cast<std::uint64_t>(pointer);
  }
};

// Asks how much memory a pool has, or has given out: what Nimble serves from a device's own pool differs from what the
// program has allocated, so replay stands aside.
struct PoolAttribute {
  static void before(Entry, Call& call, CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    const bool amount = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
                        attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                        attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if (!value || !amount || !is_of_a_device(pool)) return;
    call.asked.question = Question::pool;
    call.memory.address = reinterpret_cast<std::uint64_t>(pool);
  }
  // Nimble holds `width` bytes of the pool's memory; the program has `size` of them.
  template <class Driver>
  static CUresult reply(const Call& call, CUresult known, Driver driver, CUmemoryPool pool,
                        CUmemPool_attribute attribute, void* value) {
    const CUresult result = known == CUDA_SUCCESS ? driver(pool, attribute, value) : known;
    if (result == CUDA_SUCCESS && attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
      *static_cast<cuuint64_t*>(value) += call.memory.size - call.transfer.width;
    return result;
  }

 private:
  static bool is_of_a_device(CUmemoryPool pool);
};

// Asks which nodes a graph has. Memory that Nimble has provided has no nodes there, which a program that looks at the
// nodes may notice. Without an array the program asks only for their number, as PyTorch does after each capture: the
// driver's answer is right, since that is how many it would get.
struct GraphNodes {
  static void before(Entry, Call& call, CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
    if (!nodes || !count) return;
    call.asked.question = Question::graph_memory;
    call.graph.handle = graph;
  }
};

// Asks how the nodes of a graph are ordered.
struct GraphEdges {
  template <class... Rest>
  static void before(Entry, Call& call, CUgraph graph, Rest...) {
    call.asked.question = Question::graph_memory;
    call.graph.handle = graph;
  }
};

// Asks how much memory the current device has, and how much is left.
struct FreeMemory {
  template <class Size>
  static void before(Entry, Call& call, Size* free, Size*) {
    if (free) call.asked.question = Question::free_memory;
  }
  // `size`: how much would be left without Nimble.
  template <class Driver, class Size>
  static CUresult reply(const Call& call, CUresult known, Driver driver, Size* free, Size* total) {
    const CUresult result = known == CUDA_SUCCESS ? driver(free, total) : known;
    if (result == CUDA_SUCCESS) *free = static_cast<Size>(call.memory.size);
    return result;
  }
};

// Asks the driver to release unused graph memory.
struct GraphTrim {
  static void before(Entry, Call& call, CUdevice) { call.asked.question = Question::trim; }
};

// Asks how much memory the graphs of a device have.
struct GraphMemory {
  static void before(Entry, Call& call, CUdevice, CUgraphMem_attribute, void*) {
    call.asked.question = Question::graph_memory;
  }
};

}  // namespace nimble::shim::decode
