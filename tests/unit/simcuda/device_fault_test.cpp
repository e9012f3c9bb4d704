// Touches of memory that is closed to the device.
#include "fixture.h"

namespace {

// Two pages of a mapping each.
class DeviceFault : public Simcuda {
 protected:
  static constexpr std::size_t kPage = 2 << 20;

  void SetUp() override {
    Simcuda::SetUp();
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    OK(cuMemAddressReserve(&range_, 2 * kPage, 0, 0, 0));
    for (int i = 0; i < 2; ++i) {
      OK(cuMemCreate(&handles_[i], kPage, &prop, 0));
      OK(cuMemMap(range_ + i * kPage, kPage, 0, handles_[i], 0));
    }
    in_ = range_;
    out_ = range_ + kPage;
    allow(range_, 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemsetD8(range_, 0, 2 * kPage));
    OK(cuCtxSynchronize());
  }

  void TearDown() override {
    cuMemUnmap(range_, 2 * kPage);
    for (const CUmemGenericAllocationHandle handle : handles_) cuMemRelease(handle);
    cuMemAddressFree(range_, 2 * kPage);
    cuDevicePrimaryCtxReset(0);
    Simcuda::TearDown();
  }

  static void allow(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
    OK(cuMemSetAccess(address, bytes, &access, 1));
  }

  CUresult add_one() {
    EXPECT_EQ(launch("add_one", nullptr, 1, 32, out_, in_, 32), CUDA_SUCCESS);
    return cuCtxSynchronize();
  }

  CUdeviceptr range_ = 0, in_ = 0, out_ = 0;
  CUmemGenericAllocationHandle handles_[2] = {};
};

TEST_F(DeviceFault, WhatIsReadMayBeReadOnly) {
  allow(in_, kPage, CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(add_one());
  EXPECT_EQ(peek<int>(out_), 1);
}

TEST_F(DeviceFault, AReadOfWhatIsClosed) {
  allow(in_, kPage, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, add_one());
  EXPECT_EQ(peek<int>(out_), 0);
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(DeviceFault, AWriteToWhatIsReadOnly) {
  allow(out_, kPage, CU_MEM_ACCESS_FLAGS_PROT_READ);
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, add_one());
  EXPECT_EQ(peek<int>(out_), 0);
}

TEST_F(DeviceFault, WhatIsOpenedAgainIsThere) {
  allow(in_, kPage, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  allow(in_, kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  OK(add_one());
  EXPECT_EQ(peek<int>(out_ + 31 * sizeof(int)), 1);
}

TEST_F(DeviceFault, ACopyToWhatIsReadOnly) {
  allow(out_, kPage, CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(cuMemcpyDtoD(out_, in_, 64));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

}  // namespace
