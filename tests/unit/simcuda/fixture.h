// What the tests of the simulated driver share: an initialised driver, the primary context, the module of test kernels.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/simcuda/simcuda.h"

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define FAILS(error, call) ASSERT_EQ(call, error)

class Simcuda : public ::testing::Test {
 protected:
  void SetUp() override {
    OK(cuInit(0));
    simcuda_clear_injections();
    simcuda_track(tracked, tracked);
    const char* seed = std::getenv("SIMCUDA_SEED");
    simcuda_set_seed(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 0);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoad(&module, SIMCUDA_TEST_IMAGE));
    simcuda_reset_counters();
  }

  // Every test leaves an empty context.
  void TearDown() override {
    simcuda_track(0, 0);
    cuDevicePrimaryCtxRelease(0);
    cuCtxSetCurrent(nullptr);
  }

  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&found, module, name), CUDA_SUCCESS) << name;
    return found;
  }

  template <typename... Arguments>
  CUresult launch(const char* name, CUstream stream, unsigned grid, unsigned block, Arguments... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return cuLaunchKernel(function(name), grid, 1, 1, block, 1, 1, 0, stream, pointers, nullptr);
  }

  // Puts a digit at the end of a number: the order of the kernels can be read from it.
  CUresult append(CUstream stream, CUdeviceptr number, int digit) {
    return launch("append", stream, 1, 1, number, digit);
  }

  CUdeviceptr zeros(std::size_t bytes) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc(&memory, bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(memory, 0, bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return memory;
  }

  // What the device holds now, with no call that would let anything run.
  template <typename T>
  static T peek(CUdeviceptr memory) {
    return *reinterpret_cast<volatile T*>(memory);
  }

  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream made = nullptr;
    EXPECT_EQ(cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }

  CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent made = nullptr;
    EXPECT_EQ(cuEventCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  bool tracked = false;
};
