#include "shim/record/recorder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "analyzer/input/trace_reader.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/part_file.h"
#include "shim/record/trace/trace_text.h"
#include "tests/unit/shim/record/recorder_support.h"

namespace nimble::shim {
namespace {

// Observers read memory and write files.
TEST_F(RecorderTest, ErrnoStays) {
  struct Fails final : RecordObserver {
    bool start(const Times&) override { return false; }
    void before(const Call&, std::uint64_t, const std::atomic<bool>&) override { errno = EIO; }
    void kept(const Call&, CUresult, std::uint64_t) override { errno = ENOENT; }
    void leave() noexcept override { errno = EPERM; }
  };
  RecordObservers observers;
  observers.push_back(std::make_unique<Fails>());
  Recorder recorder({.path = path_}, context_, std::move(observers));
  for (int i = 0; i < 2; ++i) {
    Call call = op(CallKind::launch);
    errno = EDOM;
    recorder.before(call);
    EXPECT_EQ(errno, EDOM);
    recorder.after(call, CUDA_SUCCESS);
    EXPECT_EQ(errno, EDOM);
  }
  recorder.finish();
}

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

TEST_F(RecorderTest, NamesThatAreNoTextDoNotBreakTheFile) {
  Call call = op(CallKind::launch);
  call.launch.grid = call.launch.block = {1, 1, 1};
  pass(call);  // a function whose layout is unknown
  recorder_.finish();
  EXPECT_FALSE(calls().at(0)["args"].contains("params"));
}

// An address that is freed may be given out by the driver before the free returns: the free must count first.
// Frameworks load dozens of images that they never launch from: ids are the file's own, in the order of first use.
TEST_F(RecorderTest, IdsInTheFileCountFromZero) {
  Call call = op(CallKind::launch);
  call.launch.function = reinterpret_cast<CUfunction>(1);
  call.launch.grid = call.launch.block = {1, 1, 1};
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
  release.memory.address = 64;
  EXPECT_FALSE(recorder_.before(release));
  std::thread other([&] {
    EXPECT_FALSE(recorder_.before(allocate));
    allocate.memory.address = 64;
    allocate.memory.size = 8;
    recorder_.after(allocate, CUDA_SUCCESS);
  });
  other.join();
  recorder_.after(release, CUDA_SUCCESS);
  recorder_.finish();
  std::uint64_t freed = 0, allocated = 0;
  for (const Json& call : calls()) (call["cat"] == "free_async" ? freed : allocated) = call["args"]["seq"];
  EXPECT_LT(freed, allocated);
}

// As where the recording that a thread's calls went to is over, and another one begins in the course of an allocation.
TEST_F(RecorderTest, ACallWhoseBeginningWasSkippedHasNothingOfTheOneBefore) {
  Call release = op(CallKind::free_async), allocate = op(CallKind::alloc_async);
  release.memory.address = allocate.memory.address = 64;
  allocate.memory.size = 8;
  EXPECT_FALSE(recorder_.before(release));
  const auto between = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - between < std::chrono::milliseconds(2)) {
  }
  Recorder::skip();
  recorder_.after(allocate, CUDA_SUCCESS);
  recorder_.finish();
  const std::vector<Json> all = calls();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["args"]["seq"], 1);  // 0 is the release's
  EXPECT_LT(all[0]["dur"], 1000);       // us: since its end is all that is known
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
        call.transfer.dst.address = static_cast<std::uint64_t>(i);
        call.transfer.width = 4;
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

// As it is where the process ends in the middle of writing: bytes stop coming after any of them.
TEST_F(RecorderTest, AFileThatIsCutOffInWhatComesAfterItsEndCanBeRead) {
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  for (std::size_t written = 0; written <= kTraceEnd.size(); ++written) {
    std::filesystem::remove(path_);
    Recorder recorder({.path = path_}, context_);
    const auto pass_one = [&] {
      Call call = op(CallKind::set);
      EXPECT_FALSE(recorder.before(call));
      recorder.after(call, CUDA_SUCCESS);
    };
    pass_one();
    recorder.finish();
    rlimit little = unlimited;
    little.rlim_cur = std::filesystem::file_size(path_) - kTraceEnd.size() + written;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
    pass_one();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    const Trace trace = analyzer::read_trace(path_).trace;
    EXPECT_EQ(trace.calls.size(), 1u) << written;
    // There is room for the end alone, which stands there again; its last line without the closing bracket is enough.
    EXPECT_EQ(trace.complete, written >= kTraceEnd.find('\n')) << written;
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST_F(RecorderTest, AFirstCallAfterTheEndIsWrittenToo) {
  recorder_.finish();
  pass(op(CallKind::set));
  EXPECT_EQ(calls().size(), 1u);
  EXPECT_EQ(events().back()["name"], "nimble.end");
}

TEST_F(RecorderTest, TheFirstToBeginHasTheName) {
  pass(op(CallKind::set));
  while (parts_of(path_).empty()) std::this_thread::yield();
  {
    Recorder second({.path = path_}, context_);
    for (int i = 0; i < 2; ++i) {
      Call call = op(CallKind::set);
      EXPECT_FALSE(second.before(call));
      second.after(call, CUDA_SUCCESS);
    }
    second.finish();
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  recorder_.finish();
  EXPECT_EQ(calls().size(), 1u);
  EXPECT_EQ(analyzer::read_trace(name_in_place(path_, 1)).trace.calls.size(), 2u);
  std::filesystem::remove(name_in_place(path_, 1));
}

// What the program has made of the file meanwhile is its own.
TEST_F(RecorderTest, ALateCallDoesNotWriteIntoAFileThatBecameTheProgramsOwn) {
  pass(op(CallKind::set));
  recorder_.finish();
  std::ofstream(path_) << "mine";
  pass(op(CallKind::set));
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(RecorderTest, EndsAtItsBoundWithAWholeFile) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 20;
  Recorder bounded({.path = path_, .limit_bytes = kLimit}, context_);
  SinkPhase phase = SinkPhase::recording;
  std::size_t passed = 0;
  for (; passed < 100'000 && phase == SinkPhase::recording; ++passed) {
    Call call = op(CallKind::set);
    EXPECT_FALSE(bounded.before(call));
    bounded.after(call, CUDA_SUCCESS);
    phase = bounded.report().phase;
  }
  EXPECT_EQ(phase, SinkPhase::aside);
  bounded.finish();
  EXPECT_LE(std::filesystem::file_size(path_), kLimit);
  EXPECT_EQ(events().back()["name"], "nimble.end");
  EXPECT_LT(calls().size(), passed);
  EXPECT_GT(calls().size(), 1000u);
}

TEST_F(RecorderTest, EndsAfterSoManyMarkedSteps) {
  Recorder recorder({.path = path_, .steps = 3}, context_);
  const auto pass_one = [&] {
    Call call = op(CallKind::set);
    EXPECT_FALSE(recorder.before(call));
    recorder.after(call, CUDA_SUCCESS);
  };
  pass_one();
  for (int step = 0; step < 10; ++step) {
    recorder.mark(true, "empty", 1);  // no step
    recorder.mark(true, "step", 1);
    pass_one();
    recorder.mark(true, "another thread's", 2);
  }
  recorder.finish();
  EXPECT_EQ(calls().size(), 1u + 3u * 4u + 1u) << "calls and marks, up to the one that ends the third";
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
    call.launch.function = reinterpret_cast<CUfunction>(handle);
    call.launch.grid = call.launch.block = {1, 1, 1};
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
  call.launch.function = reinterpret_cast<CUfunction>(1);
  call.launch.grid = call.launch.block = {1, 1, 1};
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
  alloc.memory.address = 64;
  alloc.memory.size = 8;
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
