#include "shim/record/observers/probe/probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "shim/record/observers/make_observers.h"
#include "shim/record/recorder.h"

namespace nimble::shim {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kChunk = kProbeChunk;

ChunkDigests digests(const std::vector<std::uint8_t>& bytes) {
  ChunkDigests result;
  result.add(bytes);
  return result;
}

// "0+4096 8192+100": what changed in an object at 0.
std::string changes(const std::vector<std::uint8_t>& before, const std::vector<std::uint8_t>& after) {
  std::vector<TraceAccess> list;
  append_changes(0, before.size(), digests(before), digests(after), list);
  std::string text;
  for (const TraceAccess& change : list) {
    EXPECT_TRUE(change.writes && !change.reads);
    text.append(text.empty() ? "" : " ").append(std::to_string(change.address));
    text.append("+").append(std::to_string(change.bytes));
  }
  return text;
}

TEST(Digest, ChangesAreWholeChunksAndNeighboursAreOne) {
  std::vector<std::uint8_t> before(5 * kChunk + 100), after = before;
  EXPECT_EQ(changes(before, after), "");
  after[0] = 1;
  EXPECT_EQ(changes(before, after), "0+4096");
  after[2 * kChunk - 1] = 1;
  EXPECT_EQ(changes(before, after), "0+8192");
  after[3 * kChunk] = 1;
  EXPECT_EQ(changes(before, after), "0+8192 12288+4096");
  after[5 * kChunk + 99] = 1;
  EXPECT_EQ(changes(before, after), "0+8192 12288+4096 20480+100");
}

TEST(Digest, PiecesGiveWhatTheWholeGives) {
  std::vector<std::uint8_t> bytes(7 * kChunk + 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  ChunkDigests pieces;
  const std::span<const std::uint8_t> all(bytes);
  pieces.add(all.first(2 * kChunk));
  pieces.add(all.subspan(2 * kChunk, kChunk));
  pieces.add(all.subspan(3 * kChunk));
  EXPECT_EQ(pieces.chunks(), digests(bytes).chunks());
  EXPECT_EQ(pieces.chunks().size(), 8u);
}

TEST(Digest, WhatCannotBeComparedChanged) {
  std::vector<TraceAccess> list;
  append_changes(64, 2 * kChunk, digests(std::vector<std::uint8_t>(2 * kChunk)), digests({}), list);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0], (TraceAccess{64, 2 * kChunk, false, true}));
}

TEST(LiveObjects, OnlyWhatIsThereIsFound) {
  LiveObjects objects;
  Call call;
  call.kind = CallKind::alloc;
  call.memory.address = 0x1000;
  call.memory.size = 0x100;
  objects.allocated(call);
  EXPECT_EQ(objects.find(0x10ff)->base, 0x1000u);
  EXPECT_FALSE(objects.find(0x1100));
  call.kind = CallKind::free;
  call.memory.size = 0;
  objects.freed(call);
  EXPECT_FALSE(objects.find(0x1000));
  call.memory.size = 0x100;
  objects.allocated(call);
  objects.context_ends(nullptr);
  EXPECT_FALSE(objects.find(0x1000));
  for (MemoryKind unsafe : {MemoryKind::mapped, MemoryKind::external, MemoryKind::registered})
    EXPECT_FALSE(can_be_copied(unsafe));
  for (MemoryKind safe : {MemoryKind::device, MemoryKind::stream_ordered, MemoryKind::pinned, MemoryKind::global})
    EXPECT_TRUE(can_be_copied(safe));
}

// What lives on is known, and no number is taken for an address for its sake. What may have gone still counts as one:
// the driver may refuse to end a context, and whose memory is whose is not known for sure.
TEST(LiveObjects, AContextTakesItsOwnMemoryAlong) {
  const auto mine = reinterpret_cast<CUcontext>(1), other = reinterpret_cast<CUcontext>(2);
  LiveObjects objects;
  Call call;
  call.kind = CallKind::alloc;
  call.memory.size = 0x100;
  const auto allocate = [&](std::uint64_t address, MemoryKind memory, CUcontext context) {
    call.memory.address = address;
    call.memory.kind = memory;
    call.context = context;
    objects.allocated(call);
  };
  allocate(0x1000, MemoryKind::device, mine);
  allocate(0x2000, MemoryKind::pinned, other);
  allocate(0x3000, MemoryKind::stream_ordered, nullptr);  // a pool is the device's
  allocate(0x4000, MemoryKind::managed, nullptr);         // which the driver does not tell
  objects.context_ends(other);
  EXPECT_TRUE(objects.find(0x1000));
  EXPECT_FALSE(objects.find(0x2000));
  EXPECT_TRUE(objects.find(0x3000));
  EXPECT_FALSE(objects.find(0x4000));
  for (const std::uint64_t each : {0x1000, 0x2000, 0x3000, 0x4000}) EXPECT_TRUE(objects.may_hold(each));
  EXPECT_FALSE(objects.may_hold(0x9000));
  allocate(0x2000, MemoryKind::device, mine);
  EXPECT_TRUE(objects.find(0x2000));
  call.kind = CallKind::free;
  call.memory.size = 0;
  for (const std::uint64_t each : {0x2000, 0x4000}) {
    call.memory.address = each;
    objects.freed(call);
    EXPECT_FALSE(objects.may_hold(each));
  }
  objects.context_ends(nullptr);
  EXPECT_FALSE(objects.find(0x1000));
  EXPECT_FALSE(objects.find(0x3000));
  EXPECT_TRUE(objects.may_hold(0x3000));
}

// A driver whose memory is the test's own, and which answers what a test wants.
class Driver final : public CallContext {
 public:
  Driver() {
    kernel.params = {{0, 8}, {8, 8}, {16, 16}};
    kernel.param_bytes = 32;
    asked.clear();
    refused.clear();
    not_ready = 0;
  }
  const FunctionInfo& function(CUfunction) override { return kernel; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
  void* driver_symbol(const char* name) override {
    static const std::map<std::string, void*> all{
        {"cuEventCreate", reinterpret_cast<void*>(+[](CUevent* event, unsigned) {
           *event = reinterpret_cast<CUevent>(1);
           return answer("create");
         })},
        {"cuEventRecord", reinterpret_cast<void*>(+[](CUevent, CUstream) { return answer("record"); })},
        {"cuEventQuery", reinterpret_cast<void*>(+[](CUevent) {
           if (not_ready != 0) return --not_ready, CUDA_ERROR_NOT_READY;
           return answer("query");
         })},
        {"cuEventDestroy_v2", reinterpret_cast<void*>(+[](CUevent) { return answer("destroy"); })},
        {"cuMemcpyDtoHAsync_v2", reinterpret_cast<void*>(+[](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
           std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
           return answer("copy");
         })},
        {"cuStreamIsCapturing", reinterpret_cast<void*>(+[](CUstream, CUstreamCaptureStatus* status) {
           *status = CU_STREAM_CAPTURE_STATUS_NONE;
           return answer("is_capturing");
         })},
        {"cuThreadExchangeStreamCaptureMode",
         reinterpret_cast<void*>(+[](CUstreamCaptureMode* mode) { return std::swap(mode_now, *mode), CUDA_SUCCESS; })},
    };
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second;
  }

  static CUresult answer(const std::string& what) {
    EXPECT_EQ(mode_now, CU_STREAM_CAPTURE_MODE_RELAXED);
    ++asked[what];
    const auto found = refused.find(what);
    return found == refused.end() ? CUDA_SUCCESS : found->second;
  }

  FunctionInfo kernel;
  static inline std::map<std::string, int> asked;
  static inline std::map<std::string, CUresult> refused;
  static inline std::uint64_t not_ready = 0;
  static inline CUstreamCaptureMode mode_now = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

class ProbeTest : public testing::Test {
 protected:
  ProbeTest() {
    allocate(a_);
    allocate(b_);
  }
  void allocate(std::vector<std::uint8_t>& memory, MemoryKind kind = MemoryKind::device) {
    Call call;
    call.kind = CallKind::alloc;
    call.memory.kind = kind;
    call.memory.address = reinterpret_cast<std::uint64_t>(memory.data());
    call.memory.size = memory.size();
    probe_.allocated(call);
  }
  static std::uint64_t address(const std::vector<std::uint8_t>& memory, std::size_t at = 0) {
    return reinterpret_cast<std::uint64_t>(memory.data() + at);
  }
  // A launch with four words of parameters, of which the last two are one struct.
  template <class Kernel>
  const std::vector<TraceAccess>* launch(std::array<std::uint64_t, 4> words, Kernel kernel,
                                         CUresult result = CUDA_SUCCESS) {
    void* parameters[] = {&words[0], &words[1], &words[2]};
    Call call;
    call.kind = CallKind::launch;
    call.traced = call.has_stream = true;
    call.launch.kernel_params = parameters;
    call.symbol = symbol_;
    call.launch.attributes = attributes_.data();
    call.launch.attribute_count = static_cast<std::uint32_t>(attributes_.size());
    probe_.before(call, any_captures_);
    kernel();
    return probe_.after(call, result);
  }
  // What of the two buffers was compared, and what changed: "AB a4096+4096".
  std::string text(const std::vector<TraceAccess>* seen) const {
    if (!seen) return "nothing";
    std::string result;
    for (const TraceAccess& each : *seen) {
      if (each.bytes == 0) continue;
      const bool in_a = each.address >= address(a_) && each.address < address(a_) + a_.size();
      const std::uint64_t base = in_a ? address(a_) : address(b_);
      if (each.writes) {
        result.append(in_a ? " a" : " b").append(std::to_string(each.address - base));
        result.append("+").append(std::to_string(each.bytes));
      } else {
        EXPECT_EQ(each, (TraceAccess{base, in_a ? a_.size() : b_.size(), true, false}));
        result.append(in_a ? "A" : "B");
      }
    }
    return result;
  }

  Driver driver_;
  std::atomic<bool> any_captures_{false};
  const char* symbol_ = "";
  std::vector<CUlaunchAttribute> attributes_;
  // One block, so that which comes first is known.
  std::vector<std::uint8_t> a_ = std::vector<std::uint8_t>(3 * kChunk), b_ = std::vector<std::uint8_t>(kChunk + 10);
  Probe probe_{{kChunk * 100, milliseconds(50)}, driver_};
};

TEST_F(ProbeTest, SeesWhatALaunchWritesAndNothingElse) {
  auto* seen = launch({address(a_), address(b_, 7), 0, 5}, [&] { a_[kChunk] = 1; });
  const std::string both = address(a_) < address(b_) ? "AB" : "BA";
  EXPECT_EQ(text(seen), both + " a4096+4096");
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [&] { b_[0] = 1; })), "A");
  EXPECT_EQ(text(launch({0, 0, 0, address(b_)}, [&] { b_[kChunk] = 1; })), "B b4096+10");
  EXPECT_EQ(text(launch({address(a_), address(a_, 100), 0, 0}, [] {})), "A");
  EXPECT_EQ(text(launch({0, 0, 0, 0}, [] {})), "");
  const ProbeTotals totals = probe_.totals();
  EXPECT_EQ(totals.launches, 5u);
  EXPECT_EQ(totals.compared, 5u);
  EXPECT_EQ(totals.bytes, 2 * (3 * a_.size() + 2 * b_.size()));
  EXPECT_EQ(totals.too_large, 0u);
  EXPECT_GT(totals.time_ns, 0u);
}

TEST_F(ProbeTest, AddressesAreSeenWhereverTheyLie) {
  const auto store = [&](std::vector<std::uint8_t>& memory, std::size_t at, std::uint64_t word) {
    std::memcpy(memory.data() + at, &word, sizeof word);
  };
  // What was written, and what lay there: each as it was told.
  const auto seen = [&](const std::function<void()>& kernel) {
    const auto* list = launch({address(a_), address(b_), 0, 0}, kernel);
    const auto told = [&](const TraceAccess& remark) {
      return std::find(list->begin(), list->end(), remark) != list->end();
    };
    return std::string(told(kProbeSawAddresses) ? "wrote " : "").append(told(kProbeSawNone) ? "none" : "some");
  };
  EXPECT_EQ(seen([] {}), "none");
  EXPECT_EQ(seen([&] { store(a_, 8, 77); }), "none");
  EXPECT_EQ(seen([&] { store(a_, 2 * kChunk, address(b_, 16)); }), "wrote some");
  EXPECT_EQ(seen([&] { store(b_, 16, 78); }), "some") << "it lies there still";
  EXPECT_EQ(seen([&] { store(a_, 2 * kChunk + 8, 79); }), "wrote some") << "it was in what was written";
  EXPECT_EQ(seen([&] { store(a_, 2 * kChunk, 0); }), "some") << "the kernel may have followed what it cleared";
  EXPECT_EQ(seen([] {}), "none");
  EXPECT_EQ(seen([&] { store(b_, kChunk, address(a_)); }), "wrote some") << "in the last chunk, which is a short one";
  EXPECT_EQ(seen([&] { store(a_, 0, 80); }), "some");
  // With a context all goes that is not known to live on. What lies there may be addresses of it all the same, whatever
  // became of it: it is not checked whether the driver has ended it.
  Call end;
  end.kind = CallKind::context_end;
  end.traced = true;
  probe_.before(end, any_captures_);
  allocate(a_);
  EXPECT_EQ(seen([] {}), "none");
  EXPECT_EQ(seen([&] { store(a_, 0, address(b_, 16)); }), "wrote some");
  EXPECT_EQ(seen([&] { store(a_, 0, std::uint64_t{0x7f0012345678}); }), "some") << "the previous content is someone's";
  EXPECT_EQ(seen([] {}), "none") << "this is no one's";
  // Of a launch that names nothing, nothing of the one before.
  const auto* list = launch({0, 0, 0, 0}, [] {});
  EXPECT_EQ(std::count(list->begin(), list->end(), kProbeSawAddresses), 0);
}

TEST_F(ProbeTest, LeavesOutWhatIsTooLargeOrCannotBeCopied) {
  std::vector<std::uint8_t> large(kChunk * 100 + 1), mapped(kChunk);
  allocate(large);
  allocate(mapped, MemoryKind::mapped);
  EXPECT_EQ(text(launch({address(large), address(a_), address(mapped), 0}, [&] { large[0] = mapped[0] = 1; })), "A");
  EXPECT_EQ(probe_.totals().too_large, 1u);
}

TEST_F(ProbeTest, LargeObjectsComeInSeveralPortions) {
  Probe probe({0, milliseconds(50)}, driver_);
  std::vector<std::uint8_t> large((std::size_t{40} << 20) + 3);
  Call call;
  call.kind = CallKind::alloc;
  call.memory.address = address(large);
  call.memory.size = large.size();
  probe.allocated(call);
  std::uint64_t words[4] = {address(large)};
  void* parameters[] = {&words[0], &words[1], &words[2]};
  Call launch;
  launch.kind = CallKind::launch;
  launch.has_stream = true;
  launch.launch.kernel_params = parameters;
  probe.before(launch, any_captures_);
  large[(std::size_t{16} << 20) + 5] = large[large.size() - 1] = 1;
  const auto* seen = probe.after(launch, CUDA_SUCCESS);
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->size(), 4u);
  EXPECT_EQ((*seen)[1].address - address(large), std::uint64_t{16} << 20);
  EXPECT_EQ((*seen)[2].address - address(large), std::uint64_t{40} << 20);
  EXPECT_EQ((*seen)[2].bytes, 3u);
  EXPECT_EQ((*seen)[3], kProbeSawNone);
}

TEST_F(ProbeTest, FreedMemoryIsNotRead) {
  Call call;
  call.kind = CallKind::free_async;
  call.memory.address = address(b_);
  probe_.before(call, any_captures_);
  EXPECT_EQ(probe_.after(call, CUDA_SUCCESS), nullptr);
  EXPECT_EQ(text(launch({address(a_), address(b_), 0, 0}, [] {})), "A");
  call.kind = CallKind::context_end;
  probe_.before(call, any_captures_);
  probe_.after(call, CUDA_SUCCESS);
  EXPECT_EQ(text(launch({address(a_), address(b_), 0, 0}, [] {})), "");
}

TEST_F(ProbeTest, NothingIsAskedWhileAnythingCaptures) {
  any_captures_ = true;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  any_captures_ = false;
  // A capture that is about to begin: its stream is not known to capture yet.
  Call begin;
  begin.kind = CallKind::capture_begin;
  probe_.before(begin, any_captures_);
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  probe_.after(begin, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(Driver::asked.empty());
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "A");
  EXPECT_EQ(Driver::mode_now, CU_STREAM_CAPTURE_MODE_GLOBAL);
  // An unknown stream.
  Driver::refused["is_capturing"] = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  EXPECT_EQ(probe_.totals().launches, 1u);
}

TEST_F(ProbeTest, LaunchesWithAttributesOrThatFailAreNotCompared) {
  EXPECT_EQ(text(launch(
                {address(a_), 0, 0, 0}, [] {}, CUDA_ERROR_INVALID_VALUE)),
            "nothing");
  attributes_.resize(2);
  attributes_[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes_[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes_[1].value.cooperative = 1;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  attributes_[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  EXPECT_EQ(probe_.totals().compared, 0u);
}

TEST_F(ProbeTest, NodesOfGraphsDoNotRunWhenTheyAreRecorded) {
  symbol_ = kKernelOfAGraph;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  EXPECT_EQ(probe_.totals().launches, 0u);
}

TEST_F(ProbeTest, HowALaunchRunsIsNoReasonNotToLook) {
  attributes_.resize(2);
  attributes_[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes_[0].value.clusterDim = {2, 1, 1};
  attributes_[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes_[1].value.programmaticStreamSerializationAllowed = 1;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [&] { a_[0] = 1; })), "A a0+4096");
  EXPECT_EQ(probe_.totals().compared, 1u);
}

TEST_F(ProbeTest, ErrorsCostOneLaunchAndManyInARowEndIt) {
  for (const char* step : {"create", "record", "query", "copy"}) {
    Driver::refused = {{step, CUDA_ERROR_INVALID_VALUE}};
    EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing") << step;
    // After the launch, as well.
    Driver::refused.clear();
    EXPECT_EQ(text(launch({address(a_), 0, 0, 0},
                          [&] {
                            Driver::refused = {{step, CUDA_ERROR_INVALID_VALUE}};
                          })),
              "nothing")
        << step;
    Driver::refused.clear();
    EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "A") << step;
  }
  EXPECT_EQ(probe_.totals().why_ended, "");
  Driver::refused = {{"copy", CUDA_ERROR_ILLEGAL_ADDRESS}};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
  EXPECT_NE(probe_.totals().why_ended.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  EXPECT_LT(probe_.totals().launches, 30u);
}

TEST_F(ProbeTest, DoesNotWaitForLong) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] { Driver::not_ready = 3; })), "A");
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] { Driver::not_ready = ~std::uint64_t{0}; })), "nothing");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_NE(probe_.totals().why_ended.find("a wait timed out"), std::string::npos);
  Driver::not_ready = 0;
  EXPECT_EQ(text(launch({address(a_), 0, 0, 0}, [] {})), "nothing");
}

TEST_F(ProbeTest, OtherThreadsSubmitBeforeOrAfterIt) {
  std::atomic<bool> passed{false};
  std::thread other;
  const auto* seen = launch({address(a_), 0, 0, 0}, [&] {
    other = std::thread([&] {
      Call call;
      call.kind = CallKind::copy;
      probe_.before(call, any_captures_);
      a_[0] = 1;
      passed = true;
    });
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_FALSE(passed);
  });
  EXPECT_EQ(text(seen), "A");
  other.join();
  EXPECT_TRUE(passed);
}

TEST_F(ProbeTest, ARecordingThatHasEndedIsNotWaitedFor) {
  const std::string path = testing::TempDir() + "/probe_test." + std::to_string(getpid()) + ".json";
  {
    Recorder recorder({.path = path, .limit_bytes = 1 << 16}, driver_, make_observers({.probe = true}, driver_));
    std::array<std::uint64_t, 4> words{};
    void* parameters[] = {&words[0], &words[1], &words[2]};
    Call launch, copy;
    launch.symbol = copy.symbol = "cuSomething";
    launch.kind = CallKind::launch;
    copy.kind = CallKind::copy;
    launch.traced = launch.has_stream = copy.traced = true;
    launch.launch.kernel_params = parameters;
    EXPECT_FALSE(recorder.before(launch));
    std::atomic<bool> passed{false};
    std::thread other([&] {
      recorder.before(copy);
      passed = true;
    });
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_FALSE(passed);
    while (recorder.report().phase == SinkPhase::recording) recorder.mark(true, nullptr, 1);  // until it is full
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_FALSE(passed);
    const auto begin = std::chrono::steady_clock::now();
    recorder.after(launch, CUDA_SUCCESS);
    other.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
  std::filesystem::remove(path);
}

TEST(Gate, NoThreadWaitsForEver) {
  Gate gate;
  EXPECT_TRUE(gate.pass(milliseconds(0)));
  EXPECT_TRUE(gate.enter(milliseconds(0)));
  EXPECT_FALSE(gate.pass(milliseconds(5)));
  EXPECT_FALSE(gate.enter(milliseconds(5)));
  gate.leave();
  EXPECT_TRUE(gate.enter(milliseconds(0)));
}

}  // namespace
}  // namespace nimble::shim
