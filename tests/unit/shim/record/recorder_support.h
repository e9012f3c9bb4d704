// What the tests of Recorder share: a context without a driver, and what a recording has left in its file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shim/record/recorder.h"

namespace nimble::shim {

using Json = nlohmann::json;

class FakeContext final : public CallContext {
 public:
  FakeContext() {
    image_.self_contained = kernel_.self_contained = true;
    kernel_.name = "_Z3addPKfPf";
    kernel_.image = &image_;
    kernel_.params = {{0, 8}, {8, 8}, {16, 4}};
    kernel_.param_bytes = 20;
    unknown_.name = "no\"layout\xff";
  }
  const FunctionInfo& function(CUfunction handle) override {
    if (const auto found = more.find(handle); found != more.end()) return *found->second;
    return handle ? kernel_ : unknown_;
  }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
  void* driver_symbol(const char* name) override {
    const std::string_view asked(name);
    if (asked == "cuPointerGetAttribute")
      return reinterpret_cast<void*>(+[](void*, CUpointer_attribute, CUdeviceptr at) {
        ++pointer_questions;
        return at / 0x100000 == known_memory / 0x100000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      });
    if (asked == "cuDeviceGetCount")
      return reinterpret_cast<void*>(+[](int* count) { return *count = 1, CUDA_SUCCESS; });
    if (asked == "cuDeviceGetAttribute")
      return reinterpret_cast<void*>(
          +[](int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; });
    if (asked != "cuStreamIsCapturing") return nullptr;
    return reinterpret_cast<void*>(+[](CUstream, CUstreamCaptureStatus* out) {
      return *out = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
    });
  }

  std::map<CUfunction, const FunctionInfo*> more;
  static inline bool capturing = false;
  static inline std::uint64_t known_memory = 0;
  static inline int pointer_questions = 0;

 private:
  ImageInfo image_;
  FunctionInfo kernel_, unknown_;
};

class RecorderTest : public testing::Test {
 protected:
  void TearDown() override {
    std::filesystem::remove(path_);
    FakeContext::capturing = false;
  }

  // The file's events; checks that the whole is JSON, a line each.
  std::vector<Json> events() {
    std::ifstream file(path_);
    const Json all = Json::parse(file);
    file.clear();
    file.seekg(0);
    std::string line;
    std::size_t lines = 0;
    while (std::getline(file, line)) ++lines;
    EXPECT_EQ(lines, all.size() + 2);
    return all;
  }
  std::vector<Json> calls() {
    std::vector<Json> result;
    for (const Json& event : events()) {
      if (event["ph"] == "X" && event["pid"] == 1) result.push_back(event);
    }
    return result;
  }
  static Call op(CallKind kind, std::uintptr_t stream = 0x1000) {
    Call call;
    call.symbol = "cuSomething";
    call.kind = kind;
    call.traced = true;
    call.host = HostEffect::async;
    call.has_stream = true;
    call.stream = {nullptr, stream | 1};  // a default stream: nothing to ask the driver
    return call;
  }
  void pass(Call call, CUresult result = CUDA_SUCCESS) {
    EXPECT_FALSE(recorder_.before(call));
    recorder_.after(call, result);
  }

  const std::string path_ = testing::TempDir() + "/recorder_test." + std::to_string(getpid()) + ".json";
  FakeContext context_;
  Recorder recorder_{{.path = path_}, context_};
};

}  // namespace nimble::shim
