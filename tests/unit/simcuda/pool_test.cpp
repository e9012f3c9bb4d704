// Stream-ordered memory: which addresses come again, and what lives when.
#include "fixture.h"

namespace {

using Pool = Simcuda;

TEST_F(Pool, FreedAndAllocatedOnOneStreamIsTheSameAddress) {
  const CUstream s = stream();
  CUdeviceptr first = 0, second = 0, other = 0;
  OK(cuMemAllocAsync(&first, 1000, s));
  OK(cuMemAllocAsync(&other, 1000, s));
  EXPECT_NE(first, other);
  OK(cuMemFreeAsync(first, s));
  OK(cuMemAllocAsync(&second, 1001, s));  // the same, rounded
  EXPECT_EQ(first, second);
  std::size_t bytes = 0;
  OK(cuMemGetAddressRange(nullptr, &bytes, second + 1000));
  EXPECT_EQ(bytes, 1001u);
  OK(cuStreamSynchronize(s));
}

TEST_F(Pool, TheLastFreedIsTheFirstUsed) {
  const CUstream s = stream();
  CUdeviceptr a = 0, b = 0, again = 0;
  OK(cuMemAllocAsync(&a, 64, s));
  OK(cuMemAllocAsync(&b, 64, s));
  OK(cuMemFreeAsync(a, s));
  OK(cuMemFreeAsync(b, s));
  OK(cuMemAllocAsync(&again, 64, s));
  EXPECT_EQ(again, b);
  OK(cuMemAllocAsync(&again, 64, s));
  EXPECT_EQ(again, a);
}

TEST_F(Pool, AnotherStreamGetsItOnlyOnceTheReleaseHasRun) {
  const CUstream s = stream(), t = stream();
  CUdeviceptr first = 0, second = 0, third = 0;
  OK(cuMemAllocAsync(&first, 64, s));
  OK(cuMemFreeAsync(first, s));
  OK(cuMemAllocAsync(&second, 64, t));
  EXPECT_NE(second, first);
  OK(cuStreamSynchronize(s));
  OK(cuMemAllocAsync(&third, 64, t));
  EXPECT_EQ(third, first);
}

// The kernel may run before the allocation: only some orders show it, so a driver that never does would hide the
// mistake.
TEST_F(Pool, UseOnAnotherStreamWithoutAnEventIsFoundOut) {
  bool found = false;
  for (std::uint64_t seed = 1; seed < 40 && !found; ++seed) {
    simcuda_set_seed(seed);
    const CUstream s = stream(), t = stream();
    CUdeviceptr memory = 0;
    OK(cuMemAllocAsync(&memory, 64, s));
    OK(cuMemsetD8Async(memory, 0, 64, t));
    found = cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  EXPECT_TRUE(found);
}

TEST_F(Pool, UseAfterAnEventIsFine) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    simcuda_set_seed(seed);
    const CUstream s = stream(), t = stream();
    const CUevent e = event();
    CUdeviceptr memory = 0;
    OK(cuMemAllocAsync(&memory, 64, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(cuMemsetD8Async(memory, 0, 64, t));
    OK(cuEventRecord(e, t));
    OK(cuStreamWaitEvent(s, e, 0));
    OK(cuMemFreeAsync(memory, s));
    OK(cuCtxSynchronize());
  }
}

TEST_F(Pool, FreeTwice) {
  const CUstream s = stream();
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, 64, s));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory + 8, s));
  OK(cuMemFreeAsync(memory, s));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, s));
  OK(cuMemFreeAsync(0, s));
}

TEST_F(Pool, PooledMemoryCanBeFreedAtOnce) {
  CUdeviceptr memory = 0, again = 0;
  const CUstream s = stream();
  OK(cuMemAllocAsync(&memory, 64, s));
  OK(cuMemFree(memory));
  OK(cuMemAllocAsync(&again, 64, s));
  EXPECT_EQ(again, memory);
}

// As a device does: accesses are over then, or the program is wrong.
TEST_F(Pool, FreeingPooledMemoryAtOnceWaitsForNothing) {
  CUdeviceptr memory = 0, other = 0;
  unsigned char* host = nullptr;
  const CUstream s = stream();
  OK(cuMemAllocAsync(&memory, 64, s));
  OK(cuMemAlloc(&other, 64));
  OK(cuMemAllocHost(reinterpret_cast<void**>(&host), 64));
  host[0] = 0;
  OK(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(host), 1, 64, s));
  OK(cuMemFree(memory));
  EXPECT_EQ(host[0], 0);
  OK(cuMemFree(other));
  EXPECT_EQ(host[0], 1);
  OK(cuMemFreeHost(host));
}

TEST_F(Pool, PoolsCount) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr, of_device = nullptr;
  OK(cuMemPoolCreate(&pool, &props));
  const CUstream s = stream();
  CUdeviceptr memory = 0;
  OK(cuMemAllocFromPoolAsync(&memory, 5000, pool, s));
  cuuint64_t used = 0, reserved = 0;
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 5000u);
  CUmemoryPool owner = nullptr;
  OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  EXPECT_EQ(owner, pool);
  OK(cuMemFreeAsync(memory, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemPoolTrimTo(pool, 0));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  EXPECT_EQ(reserved, 0u);
  OK(cuDeviceGetDefaultMemPool(&of_device, 0));
  EXPECT_NE(of_device, pool);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(of_device));
  OK(cuMemPoolDestroy(pool));
}

TEST_F(Pool, TooMuch) {
  CUdeviceptr memory = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&memory, std::size_t{1} << 45, nullptr));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&memory, std::size_t{1} << 45));
}

}  // namespace
