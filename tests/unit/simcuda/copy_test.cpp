// Copies and sets: what they do, when they read, and what they wait for.
#include <array>
#include <cstring>
#include <numeric>

#include "fixture.h"

namespace {

using Copies = Simcuda;

TEST_F(Copies, PageableSourcesAreReadAtTheCall) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  int value = 1;
  OK(cuMemcpyHtoDAsync(memory, &value, sizeof value, s));
  value = 2;
  EXPECT_EQ(peek<int>(memory), 0);
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<int>(memory), 1);
}

TEST_F(Copies, PinnedSourcesAreReadWhenTheCopyRuns) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  int* value = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&value), sizeof *value, 0));
  *value = 1;
  OK(cuMemcpyHtoDAsync(memory, value, sizeof *value, s));
  *value = 2;
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<int>(memory), 2);
  OK(cuMemFreeHost(value));
}

TEST_F(Copies, RegisteredMemoryIsPinned) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  int value = 1;
  OK(cuMemHostRegister(&value, sizeof value, 0));
  OK(cuMemcpyHtoDAsync(memory, &value, sizeof value, s));
  value = 2;
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<int>(memory), 2);
  OK(cuMemHostUnregister(&value));
}

TEST_F(Copies, ToPageableMemoryIsSynchronous) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  OK(launch("fill", s, 1, 16, memory, 9, 16));
  std::array<int, 16> values{};
  OK(cuMemcpyDtoHAsync(values.data(), memory, sizeof values, s));
  EXPECT_EQ(values[15], 9);
}

TEST_F(Copies, ToPinnedMemoryIsNot) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  int* value = nullptr;
  OK(cuMemAllocHost(reinterpret_cast<void**>(&value), 64));
  *value = 0;
  OK(launch("fill", s, 1, 16, memory, 9, 16));
  OK(cuMemcpyDtoHAsync(value, memory, 64, s));
  EXPECT_EQ(*value, 0);
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(*value, 9);
  OK(cuMemFreeHost(value));
}

// The synchronous forms are ops of the legacy stream. From device to device they do not even wait for themselves.
TEST_F(Copies, SynchronousFormsWaitAsTheRealOnesDo) {
  const CUdeviceptr from = zeros(64), to = zeros(64);
  const CUstream blocking = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_NON_BLOCKING);
  OK(launch("fill", blocking, 1, 16, from, 5, 16));
  OK(launch("fill", other, 1, 16, to + 32, 6, 1));
  OK(cuMemcpyDtoD(to, from, 4));
  EXPECT_EQ(simcuda_pending(), 3u);
  int value = 0;
  OK(cuMemcpyDtoH(&value, to, 4));
  EXPECT_EQ(value, 5);
  OK(cuMemsetD32(to, 8, 1));
  EXPECT_GE(simcuda_pending(), 1u);
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(to), 8);
  EXPECT_EQ(peek<int>(to + 32), 6);
}

TEST_F(Copies, TwoAndThreeDimensions) {
  std::vector<unsigned char> host(8 * 6 * 2), back(8 * 6 * 2, 0);
  std::iota(host.begin(), host.end(), 0);
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  OK(cuMemAllocPitch(&memory, &pitch, 8, 12, 4));
  EXPECT_EQ(pitch % 512, 0u);
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = host.data();
  box.srcPitch = 8;
  box.srcHeight = 6;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = memory;
  box.dstPitch = pitch;
  box.dstHeight = 6;
  box.WidthInBytes = 8;
  box.Height = 6;
  box.Depth = 2;
  OK(cuMemcpy3D(&box));
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.srcDevice = memory;
  flat.srcPitch = pitch;
  flat.srcXInBytes = 2;
  flat.srcY = 6;
  flat.dstMemoryType = CU_MEMORYTYPE_HOST;
  flat.dstHost = back.data();
  flat.dstPitch = 8;
  flat.WidthInBytes = 4;
  flat.Height = 3;
  OK(cuMemcpy2D(&flat));
  for (std::size_t y = 0; y < 3; ++y) {
    EXPECT_EQ(std::memcmp(&back[y * 8], &host[48 + y * 8 + 2], 4), 0);
    EXPECT_EQ(back[y * 8 + 4], 0);
  }
  flat.dstPitch = 2;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&flat));
}

TEST_F(Copies, PeerToItself) {
  const CUdeviceptr from = zeros(64), to = zeros(64);
  OK(cuMemsetD16(from, 0x1234, 32));
  OK(cuMemcpyPeer(to, context, from, context, 64));
  OK(cuMemcpyPeerAsync(to, context, from, context, 64, stream()));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<std::uint16_t>(to + 62), 0x1234);
}

TEST_F(Copies, Sets) {
  const CUdeviceptr memory = zeros(1024);
  OK(cuMemsetD8(memory, 0xab, 3));
  OK(cuMemsetD16Async(memory + 4, 0xcdef, 2, nullptr));
  OK(cuMemsetD2D32(memory + 16, 32, 7, 2, 3));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<std::uint32_t>(memory), 0x00abababu);
  EXPECT_EQ(peek<std::uint32_t>(memory + 4), 0xcdefcdefu);
  EXPECT_EQ(peek<std::uint32_t>(memory + 16 + 64 + 4), 7u);
  EXPECT_EQ(peek<std::uint32_t>(memory + 16 + 64 + 8), 0u);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory + 1, 0, 1));
}

TEST_F(Copies, NonsenseIsRefused) {
  int value = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(0x1000, &value, 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(0x1000, 0, 4));
  OK(cuCtxSynchronize());
}

// Addresses that were once good are found out when the copy runs; the context is then lost, as with a real GPU.
TEST_F(Copies, LateUseSticks) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  OK(cuMemFree(memory));
  int value = 0;
  OK(cuMemcpyHtoDAsync(memory, &value, 4, s));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(s));
  CUdeviceptr other = 0;
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&other, 16));
  EXPECT_EQ(simcuda_illegal_access_count(), 1u);
}

TEST_F(Copies, RunningOffTheEndSticks) {
  const CUdeviceptr memory = zeros(512);
  std::vector<char> host(513);
  OK(cuMemcpyHtoDAsync(memory, host.data(), 513, nullptr));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

}  // namespace
