// Handles by which others would reach memory, pools and events: which there are, and what they open.
#include <unistd.h>

#include "fixture.h"

namespace {

using Sharing = Simcuda;

constexpr std::size_t kPage = 4096;

TEST_F(Sharing, MemoryOfAnotherProcessIsClosedNotFreed) {
  const CUdeviceptr memory = zeros(1000);
  CUipcMemHandle handle;
  OK(cuIpcGetMemHandle(&handle, memory + 8));
  CUdeviceptr opened = 0, base = 0;
  OK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  std::size_t bytes = 0;
  OK(cuMemGetAddressRange(&base, &bytes, opened));
  EXPECT_EQ(base, opened);
  EXPECT_EQ(bytes, 1000u);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, opened));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(opened));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
  OK(cuIpcCloseMemHandle(opened));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(opened));
}

TEST_F(Sharing, OnlyWholePagesHaveARangeHandle) {
  const CUdeviceptr memory = zeros(3 * kPage), first = (memory + kPage - 1) / kPage * kPage;
  CUdeviceptr pooled = 0;
  OK(cuMemAllocAsync(&pooled, 4 * kPage, nullptr));
  int file = -1;
  const auto ask = [&](CUdeviceptr at, std::size_t bytes) {
    return cuMemGetHandleForAddressRange(&file, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  };
  OK(ask(first, kPage));
  EXPECT_EQ(close(file), 0);
  FAILS(CUDA_ERROR_INVALID_VALUE, ask(first, 1024 * kPage));
  FAILS(CUDA_ERROR_INVALID_VALUE, ask(first + 8, kPage));
  OK(ask((pooled + kPage - 1) / kPage * kPage, kPage));
  EXPECT_EQ(close(file), 0);
}

TEST_F(Sharing, OnlyInterprocessEventsHaveAHandle) {
  CUipcEventHandle handle;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(&handle, event()));
  OK(cuIpcGetEventHandle(&handle, event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)));
  CUevent opened = nullptr;
  OK(cuIpcOpenEventHandle(&opened, handle));
  OK(cuEventQuery(opened));
  OK(cuEventDestroy(opened));
}

TEST_F(Sharing, APoolIsExportedWhereItWasMadeForThat) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr, by_default = nullptr, imported = nullptr;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuDeviceGetDefaultMemPool(&by_default, 0));
  int file = -1;
  const auto type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&file, by_default, type, 0));
  OK(cuMemPoolExportToShareableHandle(&file, pool, type, 0));
  OK(cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{file}), type, 0));
  EXPECT_EQ(close(file), 0);
  CUdeviceptr memory = 0, there = 0;
  OK(cuMemAllocFromPoolAsync(&memory, 1000, pool, nullptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&there, 1000, imported, nullptr));
  CUmemPoolPtrExportData exported;
  OK(cuMemPoolExportPointer(&exported, memory));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&there, pool, &exported));
  OK(cuMemPoolImportPointer(&there, imported, &exported));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&exported, there));
  std::size_t bytes = 0;
  OK(cuMemGetAddressRange(nullptr, &bytes, there));
  EXPECT_EQ(bytes, 1000u);
  OK(cuMemFreeAsync(there, nullptr));
  OK(cuMemFreeAsync(memory, nullptr));
  OK(cuCtxSynchronize());
}

TEST_F(Sharing, TheHostHasPoolsToo) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool devices = nullptr, by_default = nullptr, hosts = nullptr;
  OK(cuDeviceGetDefaultMemPool(&by_default, 0));
  OK(cuMemGetDefaultMemPool(&devices, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(devices, by_default);
  location.type = CU_MEM_LOCATION_TYPE_HOST;
  OK(cuMemGetDefaultMemPool(&hosts, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_NE(hosts, by_default);
}

}  // namespace
