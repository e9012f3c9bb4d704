#include "shim/recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "nimble/launch_params.h"

namespace nimble::shim {
namespace {

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

TEST_F(RecorderTest, LeavesNoFileWhereNothingHappened) {
  recorder_.finish();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RecorderTest, WritesMarksWithNamesThatItKeeps) {
  recorder_.mark(true, "before the first call", 3);
  pass(op(CallKind::event_record));
  {
    std::string name(300, 'n');
    recorder_.mark(true, name.c_str(), 3);
    name.assign(300, 'x');
  }
  recorder_.mark(false, nullptr, 3);
  recorder_.mark(true, nullptr, 4);
  EXPECT_EQ(recorder_.report().counters.steps_marked, 3u);
  EXPECT_EQ(recorder_.report().phase, SinkPhase::recording);
  recorder_.finish();
  EXPECT_EQ(recorder_.report().phase, SinkPhase::aside);
  const auto all = calls();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1]["cat"], "step_begin");
  EXPECT_EQ(all[1]["tid"], 3);
  EXPECT_EQ(all[1]["args"]["note"], std::string(255, 'n'));
  EXPECT_EQ(all[2]["cat"], "step_end");
  EXPECT_FALSE(all[3]["args"].contains("note"));
  EXPECT_LT(all[1]["args"]["seq"], all[2]["args"]["seq"]);
}

TEST_F(RecorderTest, TellsWhichWordsLeadNowhere) {
  FakeContext::known_memory = 0x7f5500000000;
  FakeContext::pointer_questions = 0;
  const auto launch = [&](std::uint64_t first, std::uint64_t second) {
    Call call = op(CallKind::launch);
    call.function = reinterpret_cast<CUfunction>(1);
    call.grid = call.block = {1, 1, 1};
    std::uint32_t n = 7;
    void* params[] = {&first, &second, &n};
    call.kernel_params = params;
    pass(call);
  };
  launch(0x7f5500000100, 0x9500000095);
  launch(0x7f5500000100, 0x9500000095);
  EXPECT_EQ(FakeContext::pointer_questions, 2) << "what is known is not asked again";
  // Memory elsewhere changes nothing.
  Call elsewhere = op(CallKind::alloc_async);
  elsewhere.address = 0x7f5600000000;
  elsewhere.size = 4096;
  pass(elsewhere);
  launch(0x7f5500000100, 0x9500000095);
  EXPECT_EQ(FakeContext::pointer_questions, 2);
  // Now there is memory at what was a number.
  FakeContext::known_memory = 0x9500000000;
  Call made = op(CallKind::alloc_async);
  made.address = 0x9500000000;
  made.size = 4096;
  pass(made);
  launch(1, 0x9500000095);
  launch(0x4000000040, 0x3f8000003f800000);
  FakeContext::known_memory = 0x4000000000;
  Call code;
  code.brings_code = true;
  pass(code);
  launch(0x4000000040, 0x3f8000003f800000);
  recorder_.finish();
  const auto all = calls();
  ASSERT_EQ(all.size(), 8u);
  for (const int i : {0, 1, 3}) EXPECT_EQ(all[i]["args"]["nowhere"], Json::parse("[8]")) << i;
  EXPECT_FALSE(all[5]["args"].contains("nowhere"));
  EXPECT_EQ(all[6]["args"]["nowhere"], Json::parse("[0]"));
  EXPECT_FALSE(all[7]["args"].contains("nowhere")) << "code that was loaded may bring memory";
}

TEST_F(RecorderTest, WritesALaunchWithItsPackedParameters) {
  Call call = op(CallKind::launch);
  call.function = reinterpret_cast<CUfunction>(1);
  call.grid = {4, 2, 1};
  call.block = {64, 1, 1};
  std::uint64_t a = 0x1122334455667788, b = 2;
  std::uint32_t n = 7;
  void* params[] = {&a, &b, &n};
  call.kernel_params = params;
  pass(call);
  recorder_.finish();
  const std::vector<Json> all = events();
  EXPECT_EQ(all.front()["name"], "nimble.trace");
  EXPECT_EQ(all.front()["args"]["version"], kTraceVersion);
  EXPECT_EQ(all.back()["name"], "nimble.end");
  const Json launch = calls().at(0);
  EXPECT_EQ(launch["cat"], "launch");
  EXPECT_EQ(launch["name"], "add");
  EXPECT_EQ(launch["args"]["grid"], Json({4, 2, 1}));
  EXPECT_EQ(launch["args"]["params"], "8877665544332211020000000000000007000000");
  const auto function =
      std::find_if(all.begin(), all.end(), [](const Json& e) { return e["name"] == "nimble.function"; });
  ASSERT_NE(function, all.end());
  EXPECT_EQ((*function)["args"]["params"], Json::parse("[[0,8],[8,8],[16,4]]"));
  EXPECT_EQ((*function)["args"]["name"], "_Z3addPKfPf");
}

TEST_F(RecorderTest, WritesWhatACopyCarriesThatMayBePointers) {
  Call alloc;
  alloc.symbol = "cuMemAlloc_v2";
  alloc.kind = CallKind::alloc;
  alloc.traced = true;
  alloc.address = 0x10000;
  alloc.size = 0x1000;
  pass(alloc);
  const std::uint64_t table[] = {7, 0x10010, 0x20000, 0x10fff, 0x11000};
  const auto copy = [&](std::uint64_t to, bool host, std::uint64_t rows = 1) {
    Call call = op(CallKind::copy);
    call.dst.address = to;
    call.src.address = reinterpret_cast<std::uint64_t>(table);
    call.width = sizeof table / rows;
    call.height = rows;
    call.host_source = host;
    return call;
  };
  pass(copy(0x10000, true));
  pass(copy(0x10004, true));  // what lies at no multiple of 8 is no pointer
  pass(copy(0x10000, false));
  pass(copy(0x10000, true, 5));
  pass(copy(0x10000, true), CUDA_ERROR_INVALID_VALUE);
  Call of_the_device = copy(0x10000, true);  // which the driver copies, too
  of_the_device.src.address = FakeContext::known_memory = 0x10100;
  pass(of_the_device);
  recorder_.finish();
  const std::vector<Json> all = calls();
  EXPECT_EQ(all.at(1)["args"]["words"], Json::parse("[[8,65552],[24,69631]]"));
  EXPECT_EQ(all.at(2)["args"]["words"], Json::array());
  for (int i = 3; i < 7; ++i) EXPECT_FALSE(all.at(i)["args"].contains("words")) << i;
}

TEST_F(RecorderTest, WritesTexturesAndVariables) {
  Call texture;
  texture.symbol = texture.note = "cuTexObjectCreate";
  texture.kind = CallKind::hidden;
  texture.traced = texture.texture = true;
  pass(texture);
  ImageInfo image;
  FunctionInfo touches;
  touches.name = "touches";
  touches.image = &image;
  touches.params.emplace();
  touches.proof.emplace().globals = {{"counter", 0x9000, 16, true, true}};
  context_.more[reinterpret_cast<CUfunction>(2)] = &touches;
  Call call = op(CallKind::launch);
  call.function = reinterpret_cast<CUfunction>(2);
  call.grid = call.block = {1, 1, 1};
  pass(call);
  recorder_.finish();
  EXPECT_EQ(calls().at(0)["args"]["texture"], true);
  const std::vector<Json> all = events();
  const auto function =
      std::find_if(all.begin(), all.end(), [](const Json& e) { return e["name"] == "nimble.function"; });
  ASSERT_NE(function, all.end());
  EXPECT_EQ((*function)["args"]["globals"], Json::parse(R"([["counter",36864,16,"rw"]])"));
}

TEST_F(RecorderTest, AKernelWithTwoHandlesIsOne) {
  ImageInfo image, other_image;
  FunctionInfo first;
  first.name = "touches";
  first.image = &image;
  FunctionInfo second = first, other_layout = first, elsewhere = first, unknown = first, unknown_too = first;
  second.is_kernel_handle = true;
  other_layout.params.emplace();
  elsewhere.image = &other_image;
  unknown.image = unknown_too.image = nullptr;  // two kernels may have that name
  std::uintptr_t handle = 2;
  for (const FunctionInfo* each : {&first, &second, &other_layout, &elsewhere, &unknown, &unknown_too}) {
    Call call = op(CallKind::launch);
    call.function = reinterpret_cast<CUfunction>(handle++);
    call.grid = call.block = {1, 1, 1};
    context_.more[call.function] = each;
    pass(call);
  }
  recorder_.finish();
  std::vector<int> ids;
  for (const Json& call : calls()) ids.push_back(call["args"]["fn"]);
  EXPECT_EQ(ids, (std::vector<int>{0, 0, 1, 2, 3, 4}));
}

TEST_F(RecorderTest, BothWaysOfPassingParametersGiveTheSameBytes) {
  std::uint64_t a = 5, b = 6;
  std::uint32_t n = 7;
  void* params[] = {&a, &b, &n};
  struct __attribute__((packed)) {
    std::uint64_t a = 5, b = 6;
    std::uint32_t n = 7;
  } buffer;
  std::size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  Call first = op(CallKind::launch);
  first.function = reinterpret_cast<CUfunction>(1);
  first.grid = first.block = {1, 1, 1};
  Call second = first;
  first.kernel_params = params;
  second.extra = extra;
  pass(first);
  pass(second);
  recorder_.finish();
  EXPECT_EQ(calls().at(0)["args"]["params"], calls().at(1)["args"]["params"]);
}

TEST_F(RecorderTest, NamesThatAreNoTextDoNotBreakTheFile) {
  Call call = op(CallKind::launch);
  call.grid = call.block = {1, 1, 1};
  pass(call);  // a function whose layout is unknown
  recorder_.finish();
  EXPECT_FALSE(calls().at(0)["args"].contains("params"));
}

// An address that is freed may be given out by the driver before the free returns: the free must count first.
// Frameworks load dozens of images that they never launch from: ids are the file's own, in the order of first use.
TEST_F(RecorderTest, IdsInTheFileCountFromZero) {
  Call call = op(CallKind::launch);
  call.function = reinterpret_cast<CUfunction>(1);
  call.grid = call.block = {1, 1, 1};
  pass(call);
  recorder_.finish();
  for (const Json& event : events()) {
    if (event["name"] == "nimble.image" || event["name"] == "nimble.function") {
      EXPECT_EQ(event["args"]["id"], 0);
    }
    if (event["name"] == "nimble.function") {
      EXPECT_EQ(event["args"]["image"], 0);
    }
  }
  EXPECT_EQ(calls().at(0)["args"]["fn"], 0);
}

TEST_F(RecorderTest, AFreeCountsFromItsEntryAnAllocationFromItsReturn) {
  Call release = op(CallKind::free_async), allocate = op(CallKind::alloc_async);
  release.address = 64;
  EXPECT_FALSE(recorder_.before(release));
  std::thread other([&] {
    EXPECT_FALSE(recorder_.before(allocate));
    allocate.address = 64;
    allocate.size = 8;
    recorder_.after(allocate, CUDA_SUCCESS);
  });
  other.join();
  recorder_.after(release, CUDA_SUCCESS);
  recorder_.finish();
  std::uint64_t freed = 0, allocated = 0;
  for (const Json& call : calls()) (call["cat"] == "free_async" ? freed : allocated) = call["args"]["seq"];
  EXPECT_LT(freed, allocated);
}

TEST_F(RecorderTest, DestroyedHandlesComeBackAsNewIds) {
  const auto record = [&] {
    Call call = op(CallKind::event_record);
    call.event = reinterpret_cast<CUevent>(0x42);
    pass(call);
  };
  record();
  record();
  Call destroy;
  destroy.event = reinterpret_cast<CUevent>(0x42);
  destroy.ends = Ends::event;
  pass(destroy);
  record();
  recorder_.finish();
  const std::vector<Json> all = calls();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["args"]["event"], all[1]["args"]["event"]);
  EXPECT_NE(all[0]["args"]["event"], all[2]["args"]["event"]);
}

TEST_F(RecorderTest, ThreadsLoseNothingAndSharesNoNumber) {
  constexpr int kThreads = 4, kCalls = 3000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        Call call = op(CallKind::set, 0x1000 * static_cast<unsigned>(t + 1));
        call.thread = static_cast<std::uint32_t>(t);
        call.dst.address = static_cast<std::uint64_t>(i);
        call.width = 4;
        EXPECT_FALSE(recorder_.before(call));
        recorder_.after(call, CUDA_SUCCESS);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder_.finish();
  std::set<std::uint64_t> seqs;
  std::vector<std::uint64_t> last(kThreads, 0);
  for (const Json& call : calls()) {
    seqs.insert(call["args"]["seq"].get<std::uint64_t>());
    std::uint64_t& expected = last[call["tid"].get<std::size_t>()];
    EXPECT_EQ(call["args"]["dst"], expected++);  // a thread's calls stand in its order
  }
  EXPECT_EQ(seqs.size(), static_cast<std::size_t>(kThreads * kCalls));
}

// Perfetto shows overlapping bars of one track wrongly.
TEST_F(RecorderTest, BarsOfOneStreamDoNotOverlap) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) pass(op(CallKind::opaque));
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder_.finish();
  std::map<int, double> end;
  int bars = 0;
  for (const Json& event : events()) {
    if (event["ph"] != "X" || event["pid"] != 2) continue;
    ++bars;
    double& busy = end[event["tid"].get<int>()];
    EXPECT_GE(event["ts"].get<double>() + 0.002, busy);  // three decimals are printed
    busy = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(bars, 1500);
}

TEST_F(RecorderTest, WhatComesAfterTheEndIsWrittenBeforeIt) {
  pass(op(CallKind::set));
  recorder_.finish();
  for (std::size_t late = 1; late <= 3; ++late) {
    pass(op(CallKind::opaque));
    EXPECT_EQ(calls().size(), 1 + late);
    EXPECT_EQ(events().back()["name"], "nimble.end");
  }
  recorder_.finish();
  EXPECT_EQ(calls().size(), 4u);
}

TEST_F(RecorderTest, AFirstCallAfterTheEndIsWrittenToo) {
  recorder_.finish();
  pass(op(CallKind::set));
  EXPECT_EQ(calls().size(), 1u);
  EXPECT_EQ(events().back()["name"], "nimble.end");
}

TEST_F(RecorderTest, AnotherProcessesFileIsLeftAlone) {
  pass(op(CallKind::set));
  Recorder second({.path = path_}, context_);
  Call call = op(CallKind::set);
  EXPECT_FALSE(second.before(call));
  second.after(call, CUDA_SUCCESS);
  while (!std::filesystem::exists(path_)) std::this_thread::yield();
  second.finish();
  recorder_.finish();
  EXPECT_EQ(calls().size(), 1u);
}

TEST_F(RecorderTest, WritesWhatAnOpTouches) {
  Call call = op(CallKind::opaque);
  call.list_accesses = [](const Call&, std::vector<TraceAccess>& list) {
    list = {{16, 8, true, false}, {32, 0, true, true}};
    return true;
  };
  pass(call);
  call.list_accesses = [](const Call&, std::vector<TraceAccess>& list) {
    list = {{16, 8, true, false}};
    return false;
  };
  pass(call);
  call.list_accesses = [](const Call&, std::vector<TraceAccess>&) { return true; };
  pass(call);
  pass(op(CallKind::opaque));
  recorder_.finish();
  EXPECT_EQ(calls().at(0)["args"]["accesses"], Json::parse(R"([[16,8,"r"],[32,0,"rw"]])"));
  EXPECT_FALSE(calls().at(1)["args"].contains("accesses")) << "a list that is not whole is none";
  EXPECT_EQ(calls().at(2)["args"]["accesses"], Json::array());
  EXPECT_FALSE(calls().at(3)["args"].contains("accesses"));
}

// A program may load much code and launch little of it, and threads may meet functions in any order.
TEST_F(RecorderTest, IdsInTheFileCountInTheOrderOfFirstUse) {
  ImageInfo image;
  FunctionInfo late, early;
  late.name = "late";
  late.image = &image;
  early.name = "early";
  context_.more = {{reinterpret_cast<CUfunction>(16), &late}, {reinterpret_cast<CUfunction>(32), &early}};
  for (const std::uintptr_t handle : {16, 32, 16}) {
    Call call = op(CallKind::launch);
    call.function = reinterpret_cast<CUfunction>(handle);
    call.grid = call.block = {1, 1, 1};
    pass(call);
  }
  recorder_.finish();
  std::vector<Json> defined;
  for (const Json& event : events()) {
    if (event["name"] == "nimble.function" || event["name"] == "nimble.image") defined.push_back(event["args"]);
  }
  ASSERT_EQ(defined.size(), 3u);
  EXPECT_EQ(defined[0]["id"], 0) << "the image";
  EXPECT_EQ(defined[1]["id"], 0);
  EXPECT_EQ(defined[1]["name"], "late");
  EXPECT_EQ(defined[1]["image"], 0);
  EXPECT_EQ(defined[2]["id"], 1);
  EXPECT_EQ(calls().at(0)["args"]["fn"], 0);
  EXPECT_EQ(calls().at(1)["args"]["fn"], 1);
  EXPECT_EQ(calls().at(2)["args"]["fn"], 0);
}

TEST_F(RecorderTest, AContextsEndTakesItsStreamsAlong) {
  const auto streams_seen = [&] {
    pass(op(CallKind::set, 0x1000));
    pass(op(CallKind::set, 0x2000));
  };
  streams_seen();
  Call end;
  end.symbol = "cuCtxDestroy_v2";
  end.kind = CallKind::context_end;
  end.traced = true;
  end.context = reinterpret_cast<CUcontext>(0x1000);
  pass(end);
  streams_seen();
  recorder_.finish();
  const std::vector<Json> all = calls();
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[2]["args"]["context"], 0) << "that of the first stream";
  EXPECT_NE(all[0]["args"]["stream"], all[3]["args"]["stream"]) << "its handle has come back as another stream";
  EXPECT_EQ(all[1]["args"]["stream"], all[4]["args"]["stream"]);
  std::map<int, int> context_of;
  for (const Json& event : events()) {
    if (event["name"] == "nimble.stream") context_of[event["args"]["id"]] = event["args"]["context"];
  }
  EXPECT_EQ(context_of, (std::map<int, int>{{0, 0}, {1, 1}, {2, 0}}));
}

TEST_F(RecorderTest, EventsThatALaunchRecords) {
  Call call = op(CallKind::launch);
  call.function = reinterpret_cast<CUfunction>(1);
  call.grid = call.block = {1, 1, 1};
  call.event = reinterpret_cast<CUevent>(0x42);
  call.event2 = reinterpret_cast<CUevent>(0x43);
  pass(call);
  Call record = op(CallKind::event_record);
  record.event = reinterpret_cast<CUevent>(0x43);
  pass(record);
  recorder_.finish();
  EXPECT_NE(calls().at(0)["args"]["event"], calls().at(0)["args"]["event2"]);
  EXPECT_EQ(calls().at(0)["args"]["event2"], calls().at(1)["args"]["event"]);
}

TEST_F(RecorderTest, WhatAStreamCollectsForAGraphIsNotExecuted) {
  context_.capturing = true;
  pass(op(CallKind::capture_begin));
  pass(op(CallKind::set));
  pass(op(CallKind::set, 0x2000));  // all streams capture, says this driver
  Call alloc = op(CallKind::alloc_async);
  alloc.address = 64;
  alloc.size = 8;
  pass(alloc);
  // A call that should end the capture and does not.
  pass(op(CallKind::capture_end), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  pass(op(CallKind::set));
  // One that was invalidated: it fails, and the capture is over.
  context_.capturing = false;
  pass(op(CallKind::capture_end), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  context_.capturing = true;  // as any other thread's may be; this recorder knows of none
  pass(op(CallKind::set));
  recorder_.finish();
  std::vector<std::string> kinds;
  for (const Json& call : calls()) kinds.push_back(call["cat"]);
  EXPECT_EQ(kinds, (std::vector<std::string>{"capture_begin", "alloc", "capture_end", "capture_end", "set"}));
  EXPECT_EQ(calls().at(1)["args"]["memory"], "mapped") << "memory of the graph's has its address from now on";
}

}  // namespace
}  // namespace nimble::shim
