#include "replayer/driver/captures.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

StreamRef stream(std::uint64_t key) { return {reinterpret_cast<CUstream>(key), key}; }

TEST(Captures, EndAsOftenAsTheyBegan) {
  Captures captures;
  EXPECT_FALSE(captures.any());
  captures.begin(stream(0x10));
  captures.begin(stream(0x10));
  captures.begin(stream(0x20));
  captures.forget(stream(0x10));
  captures.forget(stream(0x20));
  EXPECT_TRUE(captures.any());
  captures.forget(stream(0x10));
  captures.forget(stream(0x10));  // once more than it began
  EXPECT_FALSE(captures.any());
}

TEST(Captures, TakeOpsOfStreamsThatTheDriverSaysCapture) {
  const auto ask = [](CUstream handle, CUstreamCaptureStatus* status) {
    const auto key = reinterpret_cast<std::uint64_t>(handle);
    *status = key == 0x20 ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return key == 0x30 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  };
  Captures captures;
  Call call;
  call.has_stream = true;
  call.stream = stream(0x10);
  EXPECT_FALSE(captures.takes(call, ask));  // no capture began
  captures.begin(stream(0x10));
  EXPECT_TRUE(captures.takes(call, ask));
  call.stream = stream(0x20);
  EXPECT_FALSE(captures.takes(call, ask));
  call.stream = stream(0x30);
  EXPECT_FALSE(captures.takes(call, ask));
  call.stream = stream(0x10);
  call.has_stream = false;
  EXPECT_FALSE(captures.takes(call, ask));
}

}  // namespace
}  // namespace nimble
