// Memory as objects: ranges, attributes, mapped memory.
#include "fixture.h"

namespace {

using MemoryCalls = Simcuda;

TEST_F(MemoryCalls, RangesAndAttributes) {
  CUdeviceptr memory = 0, base = 0;
  OK(cuMemAlloc(&memory, 1000));
  EXPECT_EQ(memory % 512, 0u);
  std::size_t bytes = 0;
  OK(cuMemGetAddressRange(&base, &bytes, memory + 999));
  EXPECT_EQ(base, memory);
  EXPECT_EQ(bytes, 1000u);
  FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, memory + 1000));
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  OK(cuMemFree(memory));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
}

TEST_F(MemoryCalls, UnknownPointersHaveNoAttributes) {
  int value = 0;
  unsigned type = 77;
  CUcontext of = context;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
  void* out[] = {&type, &of};
  OK(cuPointerGetAttributes(2, attributes, out, reinterpret_cast<CUdeviceptr>(&value)));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(of, nullptr);
}

TEST_F(MemoryCalls, FreeWaitsForWorkInFlight) {
  const CUdeviceptr memory = zeros(64), number = zeros(8);
  OK(append(stream(), number, 1));
  OK(cuMemFree(memory));
  EXPECT_EQ(peek<unsigned long long>(number), 1u);
}

TEST_F(MemoryCalls, HostMemoryIsTheSameOnTheDevice) {
  void* host = nullptr;
  OK(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_PORTABLE));
  CUdeviceptr device = 0;
  OK(cuMemHostGetDevicePointer(&device, host, 0));
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(host, 100, 0));
  FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
  OK(launch("fill", nullptr, 1, 25, device, 3, 25));
  OK(cuCtxSynchronize());
  EXPECT_EQ(static_cast<int*>(host)[24], 3);
  OK(cuMemFreeHost(host));
}

TEST_F(MemoryCalls, ManagedMemoryIsSharedWithTheHost) {
  CUdeviceptr memory = 0;
  OK(cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<int*>(memory) = 41;
  OK(launch("add_one", nullptr, 1, 1, memory + 4, memory, 1));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(memory + 4), 42);
  unsigned managed = 0;
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
  EXPECT_TRUE(managed);
}

TEST_F(MemoryCalls, MappedTwiceIsTheSameMemory) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t page = 0;
  OK(cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, 2 * page, 0, 0, 0));
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, page, &prop, 0));
  OK(cuMemMap(range, page, 0, handle, 0));
  OK(cuMemMap(range + page, page, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemSetAccess(range, 2 * page, &access, 1));
  OK(cuMemRelease(handle));
  OK(cuMemsetD32(range, 17, 1));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(range + page), 17);
  OK(cuMemUnmap(range, 2 * page));
  OK(cuMemAddressFree(range, 2 * page));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range, 2 * page));
}

// Memory of many sizes, allocated and freed in turn: what is free is found again.
TEST_F(MemoryCalls, AddressesAreUsedAgain) {
  CUdeviceptr lowest = ~CUdeviceptr{0}, highest = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<CUdeviceptr> all;
    for (std::size_t i = 1; i < 20; ++i) {
      CUdeviceptr memory = 0;
      OK(cuMemAlloc(&memory, i * 777));
      all.push_back(memory);
      lowest = std::min(lowest, memory);
      highest = std::max(highest, memory);
    }
    for (const CUdeviceptr memory : all) OK(cuMemFree(memory));
  }
  EXPECT_LT(highest - lowest, 1u << 20);
}

}  // namespace
