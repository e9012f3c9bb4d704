// cuGetProcAddress: names, versions, default streams, and what is said of a name that is not there.
#include <dlfcn.h>

#include "fixture.h"

namespace {

using V1 = CUresult (*)(const char*, void**, int, cuuint64_t);

void* symbol(const char* name) { return dlsym(RTLD_DEFAULT, name); }

void* found(const char* name, int version, cuuint64_t flags = 0) {
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  EXPECT_EQ(cuGetProcAddress(name, &pointer, version, flags, &status), CUDA_SUCCESS) << name;
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS) << name;
  void* again = nullptr;
  EXPECT_EQ(reinterpret_cast<V1>(symbol("cuGetProcAddress"))(name, &again, version, flags), CUDA_SUCCESS);
  EXPECT_EQ(again, pointer);
  return pointer;
}

TEST(ProcAddress, TheNewestVersionThatIsNotTooNew) {
  EXPECT_EQ(found("cuMemAlloc", 2000), symbol("cuMemAlloc"));
  EXPECT_EQ(found("cuMemAlloc", 3019), symbol("cuMemAlloc"));
  EXPECT_EQ(found("cuMemAlloc", 3020), symbol("cuMemAlloc_v2"));
  EXPECT_EQ(found("cuMemAlloc", 13000), symbol("cuMemAlloc_v2"));
  EXPECT_EQ(found("cuStreamGetCaptureInfo", 11030), symbol("cuStreamGetCaptureInfo_v2"));
  EXPECT_EQ(found("cuStreamGetCaptureInfo", 12030), symbol("cuStreamGetCaptureInfo_v3"));
  EXPECT_EQ(found("cuCtxCreate", 11040), symbol("cuCtxCreate_v3"));
  EXPECT_EQ(found("cuCtxCreate", 12050), symbol("cuCtxCreate_v4"));
  EXPECT_EQ(found("cuGraphAddKernelNode", 11080), symbol("cuGraphAddKernelNode"));
  EXPECT_EQ(found("cuGraphAddKernelNode", 12000), symbol("cuGraphAddKernelNode_v2"));
  EXPECT_EQ(found("cuEventElapsedTime", 12080), symbol("cuEventElapsedTime_v2"));
  EXPECT_EQ(found("cuGetProcAddress", 12000), symbol("cuGetProcAddress_v2"));
  EXPECT_EQ(found("cuGraphInstantiate", 11000), symbol("cuGraphInstantiate_v2"));
  EXPECT_EQ(found("cuGraphInstantiate", 12000), symbol("cuGraphInstantiateWithFlags"));
  EXPECT_EQ(found("cuCtxSynchronize", 12080), symbol("cuCtxSynchronize"));
  EXPECT_EQ(found("cuCtxSynchronize", 13000), symbol("cuCtxSynchronize_v2"));
  EXPECT_EQ(found("cuInit", 13000), symbol("cuInit"));
}

TEST(ProcAddress, DefaultStreams) {
  const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(found("cuLaunchKernel", 13000), symbol("cuLaunchKernel"));
  EXPECT_EQ(found("cuLaunchKernel", 13000, legacy), symbol("cuLaunchKernel"));
  EXPECT_EQ(found("cuLaunchKernel", 13000, per_thread), symbol("cuLaunchKernel_ptsz"));
  EXPECT_EQ(found("cuMemcpyHtoD", 13000, per_thread), symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(found("cuMemAlloc", 13000, per_thread), symbol("cuMemAlloc_v2"));  // takes no stream
}

TEST(ProcAddress, WhatIsNotThere) {
  const auto v1 = reinterpret_cast<V1>(symbol("cuGetProcAddress"));
  void* pointer = &pointer;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &pointer, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(v1("cuNoSuchThing", &pointer, 13000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress("cuMemAllocAsync", &pointer, 11010, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cuGetProcAddress("cuMemAlloc_v2", &pointer, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_NE(cuGetProcAddress("", &pointer, 0, 0, nullptr), CUDA_SUCCESS);  // how a runtime probes
  EXPECT_EQ(cuGetProcAddress("cuInit", &pointer, 20000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", &pointer, 13000, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
