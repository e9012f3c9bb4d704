// Contexts, streams and events as objects, and the errors of their misuse.
#include "fixture.h"

namespace {

using Objects = Simcuda;

TEST(Uninitialised, AContextIsNeeded) {
  ASSERT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  OK(cuInit(0));
  OK(cuCtxSetCurrent(nullptr));
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Objects, TheDeviceIsLikeAnH200) {
  int value = 0;
  OK(cuDriverGetVersion(&value));
  EXPECT_EQ(value, 13000);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(value, 132);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  EXPECT_EQ(value, 9);
  FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&value, 1));
}

TEST_F(Objects, PrimaryContextIsCounted) {
  CUcontext again = nullptr;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT_EQ(again, context);
  OK(cuDevicePrimaryCtxRelease(0));
  unsigned flags = 0;
  int active = 0;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(context));
}

TEST_F(Objects, ContextsStack) {
  CUcontext made = nullptr, seen = nullptr;
  OK(cuCtxCreate(&made, nullptr, 0, 0));
  OK(cuCtxGetCurrent(&seen));
  EXPECT_EQ(seen, made);
  OK(cuCtxPopCurrent(&seen));
  EXPECT_EQ(seen, made);
  OK(cuCtxGetCurrent(&seen));
  EXPECT_EQ(seen, context);
  OK(cuCtxPushCurrent(made));
  OK(cuCtxDestroy(made));
  OK(cuCtxGetCurrent(&seen));
  EXPECT_EQ(seen, context);
  OK(cuCtxSetCurrent(made));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
}

TEST_F(Objects, StreamsSayWhatTheyAre) {
  CUstream s = nullptr;
  OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  unsigned flags = 0;
  CUcontext of = nullptr;
  OK(cuStreamGetPriority(s, &priority));
  OK(cuStreamGetFlags(s, &flags));
  OK(cuStreamGetCtx(s, &of));
  EXPECT_EQ(priority, -5);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(of, context);
  OK(cuStreamDestroy(s));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
}

// What a stream was given is done even if it is destroyed at once.
TEST_F(Objects, WorkOutlivesItsStream) {
  const CUdeviceptr number = zeros(8);
  const CUstream s = stream();
  OK(append(s, number, 4));
  OK(cuStreamDestroy(s));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<unsigned long long>(number), 4u);
}

TEST_F(Objects, EventsWithoutTiming) {
  const CUstream s = stream();
  const CUevent timed = event(), timed_too = event(), untimed = event(CU_EVENT_DISABLE_TIMING);
  float milliseconds = 0;
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, timed, timed_too));
  OK(cuEventRecord(timed, s));
  OK(cuEventRecord(untimed, s));
  OK(cuEventRecord(timed_too, s));
  FAILS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, timed, timed_too));
  OK(cuStreamSynchronize(s));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, timed, untimed));
  OK(cuEventElapsedTime(&milliseconds, timed, timed_too));
  EXPECT_GE(milliseconds, 0);
}

TEST_F(Objects, ErrorsHaveNames) {
  const char* name = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
  EXPECT_STREQ(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  OK(cuGetErrorString(CUDA_SUCCESS, &name));
  EXPECT_STREQ(name, "no error");
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(4242), &name));
  EXPECT_EQ(name, nullptr);
}

TEST_F(Objects, CallbacksAreCalled) {
  const CUstream s = stream();
  struct Told {
    CUstream stream = nullptr;
    CUresult result = CUDA_ERROR_UNKNOWN;
  } told;
  OK(cuStreamAddCallback(
      s,
      [](CUstream which, CUresult result, void* data) {
        *static_cast<Told*>(data) = {which, result};
      },
      &told, 0));
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(told.stream, s);
  EXPECT_EQ(told.result, CUDA_SUCCESS);
}

}  // namespace
