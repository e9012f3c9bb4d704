#include "replayer/step_player.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

using Log = std::vector<std::string>;

// alloc T; set T; launch T; record; launch W | launch W, launch T; free T. Two segments, cut by a host function.
Schedule schedule() {
  Schedule s;
  s.functions = {{"k", {{0, 8}, {8, 4}}}};
  s.objects = {{MemoryKind::device, 64}, {MemoryKind::stream_ordered, 64, true, 0}};
  s.arena_bytes = 256;
  const auto op = [&](CallKind kind, Submit submit, std::uint32_t segment = kNone) -> ScheduleOp& {
    ScheduleOp& added = s.ops.emplace_back();
    added.kind = kind;
    added.submit = submit;
    added.segment = segment;
    return added;
  };
  const auto launch = [&](std::uint32_t segment, std::uint32_t object) {
    ScheduleOp& added = op(CallKind::launch, Submit::graph, segment);
    added.function = 0;
    added.grid = added.block = {1, 1, 1};
    added.pointers = {{0, {object, 0, false}}};
  };
  ScheduleOp& alloc = op(CallKind::alloc_async, Submit::plan);
  alloc.object = 1;
  alloc.size = 64;
  ScheduleOp& set = op(CallKind::set, Submit::graph, 0);
  set.dst = {1, 0, false};
  set.width = 64;
  set.element = 4;
  launch(0, 1);
  op(CallKind::event_record, Submit::graph, 0);
  launch(0, 0);
  op(CallKind::host_function, Submit::direct);
  launch(1, 0);
  launch(1, 1);
  ScheduleOp& free = op(CallKind::free_async, Submit::plan);
  free.object = 1;
  s.segments = {{1, 4, 1, 0, {{1, 2}, {2, 3}}, {1, 2, 3, 4}}, {6, 7, 1, 0, {{6, 7}}, {6, 7}}};
  return s;
}

class StepPlayerTest : public testing::Test {
 protected:
  explicit StepPlayerTest(Schedule s = schedule()) : player_(std::move(s), driver_, api_, counters_) {}

  static constexpr std::uint64_t kWeights = 0x5000, kPool = 0x9000;

  void SetUp() override { allocated(kWeights, 64, MemoryKind::device); }

  Call call(CallKind kind, CUstream stream = FakeDriver::kStream) {
    Call c;
    c.kind = kind;
    c.traced = true;
    c.host = HostEffect::async;
    c.has_stream = true;
    c.stream = {stream, reinterpret_cast<std::uint64_t>(stream)};
    return c;
  }
  // Makes the call; what passes to the driver is logged as "passed".
  CUresult make(Call& c, CUresult driver_says = CUDA_SUCCESS) {
    if (const auto answer = player_.before(c)) return *answer;
    driver_.log.push_back("passed");
    if (c.kind == CallKind::alloc_async) c.address = kPool;
    player_.after(c, driver_says);
    return driver_says;
  }
  void allocated(std::uint64_t base, std::uint64_t size, MemoryKind memory) {
    Call c = call(CallKind::alloc);
    c.address = base;
    c.size = size;
    c.memory = memory;
    player_.after(c, CUDA_SUCCESS);
  }
  std::uint64_t alloc(std::uint64_t size = 64) {
    Call c = call(CallKind::alloc_async);
    c.memory = MemoryKind::stream_ordered;
    c.size = size;
    make(c);
    return c.address;
  }
  CUresult set(std::uint64_t address, std::uint32_t value = 1, CUresult driver_says = CUDA_SUCCESS) {
    Call c = call(CallKind::set);
    c.dst.address = address;
    c.width = 64;
    c.element = 4;
    c.value = value;
    return make(c, driver_says);
  }
  CUresult launch(std::uint64_t pointer, std::uint32_t number, CUfunction function = FakeDriver::kKernel,
                  CUstream stream = FakeDriver::kStream, std::uint32_t grid = 1) {
    Call c = call(CallKind::launch, stream);
    void* params[] = {&pointer, &number};
    c.function = function;
    c.grid = {grid, 1, 1};
    c.block = {1, 1, 1};
    c.kernel_params = params;
    return make(c);
  }
  CUresult record(CUevent event = reinterpret_cast<CUevent>(0x50), CUstream stream = FakeDriver::kStream) {
    Call c = call(CallKind::event_record, stream);
    c.event = event;
    return make(c);
  }
  void host_function() {
    Call c = call(CallKind::host_function);
    make(c);
  }
  void free(std::uint64_t address, CUstream stream = FakeDriver::kStream) {
    Call c = call(CallKind::free_async, stream);
    c.address = address;
    make(c);
  }
  void observe(CallKind kind, CUevent event = nullptr, CUstream stream = FakeDriver::kStream) {
    Call c = call(kind, stream);
    c.host = HostEffect::observe;
    c.event = event;
    make(c);
  }

  void first_part(std::uint64_t t) {
    set(t);
    launch(t, 1);
    record();
    launch(kWeights, 2);
  }
  void step() {
    const std::uint64_t t = alloc();
    first_part(t);
    host_function();
    launch(kWeights, 3);
    launch(t, 4);
    free(t);
  }
  // Passes one step, so that the next is replayed.
  void bind() {
    step();
    driver_.log.clear();
  }
  // The log without what binding does.
  Log submitted() {
    Log result;
    for (const std::string& entry : driver_.log) {
      if (entry != "node" && entry != "instantiate" && entry != "alloc") result.push_back(entry);
    }
    driver_.log.clear();
    return result;
  }

  FakeDriver driver_;
  DriverApi api_ = driver_.api();
  Counters counters_;
  StepPlayer player_;
};

TEST_F(StepPlayerTest, TheFirstStepPassesTheNextOnesAreGraphs) {
  step();
  EXPECT_EQ(driver_.log, Log(9, "passed"));
  driver_.log.clear();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));  // the host function passes between two graphs
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  EXPECT_EQ(counters_.steps_replayed, 2u);
  EXPECT_EQ(counters_.steps_passed_through, 1u);
}

// A schedule may rest on what the step before has left in memory.
class CarryingTest : public StepPlayerTest {
 protected:
  static Schedule carrying() {
    Schedule s = schedule();
    s.carries = true;
    return s;
  }
  CarryingTest() : StepPlayerTest(carrying()) {}
};

TEST_F(CarryingTest, AStepBehindOneThatDivergedPasses) {
  bind();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1, FakeDriver::kKernel, FakeDriver::kStream, 0);  // an empty launch is no part of any step
  free(t);
  submitted();
  step();
  EXPECT_EQ(submitted(), Log(7, "passed")) << "memory from the plan, and nothing held";
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  EXPECT_EQ(counters_.steps_replayed, 2u);
}

TEST_F(StepPlayerTest, StepLocalMemoryComesFromThePlan) {
  bind();
  EXPECT_EQ(alloc(), FakeDriver::kArena);
}

TEST_F(StepPlayerTest, NothingIsSubmittedBeforeItsSegmentIsWhole) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1);
  record();
  EXPECT_EQ(submitted(), Log{});
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), Log{"graph"});
}

TEST_F(StepPlayerTest, ChangedParametersArePatched) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 77);
  launch(t, 1);
  record();
  launch(kWeights, 99);
  EXPECT_EQ(submitted(), (Log{"patch 77", "patch 99", "graph"}));
}

TEST_F(StepPlayerTest, ADivergenceSubmitsWhatIsHeldInProgramOrder) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6);
  launch(t, 7);  // the schedule expects a record
  EXPECT_EQ(submitted(), (Log{"set 5", "launch 6", "passed"}));
  EXPECT_EQ(counters_.divergences.size(), 1u);
}

TEST_F(StepPlayerTest, AnotherKernelOrAnotherObjectIsADivergence) {
  bind();
  std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6, reinterpret_cast<CUfunction>(0x11));
  EXPECT_EQ(submitted(), (Log{"set 5", "passed"}));
  free(t);
  t = alloc();
  set(t, 5);
  launch(kWeights, 6);
  EXPECT_EQ(submitted(), (Log{"set 5", "passed"}));
}

TEST_F(StepPlayerTest, ReplayGoesOnAfterADivergence) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 7, reinterpret_cast<CUfunction>(0x11));
  free(t);
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
}

TEST_F(StepPlayerTest, MemoryThatIsStillInUseIsNotServedTwice) {
  bind();
  const std::uint64_t kept = alloc();
  first_part(kept);
  host_function();
  launch(kWeights, 3);
  launch(kept, 4);
  // No free; a new step begins.
  EXPECT_EQ(alloc(), kPool);
  free(kept);
  EXPECT_EQ(alloc(), kept);
}

// Calls through which the program could see that work is held back, and calls that look like it but could not.
TEST_F(StepPlayerTest, OnlyCallsThatCouldObserveFlush) {
  const auto mine = reinterpret_cast<CUevent>(0x50), older = reinterpret_cast<CUevent>(0x51);
  const auto flushes = [&](auto&& action) {
    const std::uint64_t t = alloc();
    set(t, 5);
    launch(t, 6);
    record(mine);
    submitted();
    action();
    const Log log = submitted();
    const bool flushed = std::find(log.begin(), log.end(), "set 5") != log.end();
    launch(kWeights, 2);
    host_function();
    launch(kWeights, 3);
    launch(t, 4);
    free(t);
    submitted();
    return flushed;
  };
  bind();
  EXPECT_FALSE(flushes([] {}));
  EXPECT_TRUE(flushes([&] { observe(CallKind::stream_synchronize); }));
  EXPECT_FALSE(flushes([&] { observe(CallKind::stream_synchronize, nullptr, FakeDriver::kOther); }));
  EXPECT_TRUE(flushes([&] { observe(CallKind::event_synchronize, mine); }));
  EXPECT_FALSE(flushes([&] { observe(CallKind::event_synchronize, older); }));
  EXPECT_TRUE(flushes([&] { observe(CallKind::context_synchronize); }));
  EXPECT_TRUE(flushes([&] {  // another stream waits for an event whose record is held
    Call c = call(CallKind::event_wait, FakeDriver::kOther);
    c.event = mine;
    make(c);
  }));
  EXPECT_FALSE(flushes([&] {
    Call c = call(CallKind::event_wait, FakeDriver::kOther);
    c.event = older;
    make(c);
  }));
  EXPECT_TRUE(flushes([&] { record(mine, FakeDriver::kOther); }));
  EXPECT_FALSE(flushes([&] { launch(kWeights, 9, FakeDriver::kKernel, FakeDriver::kOther); }));
  EXPECT_TRUE(flushes([&] {  // a synchronous copy, on whatever stream
    Call c = call(CallKind::copy, FakeDriver::kOther);
    c.host = HostEffect::observe;
    make(c);
  }));
  EXPECT_TRUE(flushes([&] {  // the event is destroyed while its record is held
    Call c;
    c.ends = Ends::event;
    c.event = mine;
    make(c);
  }));
  EXPECT_FALSE(flushes([&] {
    Call c = call(CallKind::alloc);
    c.host = HostEffect::neutral;
    make(c);
  }));
}

TEST_F(StepPlayerTest, AfterAFlushTheRestOfTheSegmentPassesAndTheNextOneIsAGraph) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 5);
  observe(CallKind::stream_synchronize);
  EXPECT_EQ(submitted(), (Log{"set 5", "passed"}));
  launch(t, 1);
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), Log(3, "passed"));
  host_function();
  launch(kWeights, 3);
  launch(t, 4);
  EXPECT_EQ(submitted(), (Log{"passed", "graph"}));
  free(t);
  EXPECT_EQ(counters_.steps_replayed, 0u);
  EXPECT_EQ(counters_.steps_passed_through, 2u);
}

TEST_F(StepPlayerTest, LaunchShapesMayChange) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1, FakeDriver::kKernel, FakeDriver::kStream, 5);
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), (Log{"patch 1", "graph"}));
  host_function();
  launch(kWeights, 3, FakeDriver::kKernel, FakeDriver::kStream, 0);  // an empty grid fits into no graph
  EXPECT_EQ(submitted(), (Log{"passed", "passed"}));
}

TEST_F(StepPlayerTest, MovedBuffersAreFollowed) {
  bind();
  step();
  submitted();
  Call release = call(CallKind::free);
  release.address = kWeights;
  make(release);
  allocated(0x6000, 64, MemoryKind::device);
  const std::uint64_t t = alloc();
  set(t);
  launch(t, 1);
  record();
  launch(0x6000, 2);
  EXPECT_EQ(submitted(), (Log{"passed", "patch 2", "graph"}));  // the free, then the graph
  host_function();
  launch(kWeights, 3);  // not alive any more
  EXPECT_EQ(submitted(), (Log{"passed", "passed"}));
}

TEST_F(StepPlayerTest, AScalarThatBecomesAPointerIsADivergence) {
  Schedule s = schedule();
  s.functions[0].params = {{0, 8}, {8, 8}};
  // The word at byte 8 was no pointer when it was recorded.
  struct Context final : CallContext {
    FunctionInfo info;
    const FunctionInfo& function(CUfunction) override { return info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  } context;
  context.info.name = "k";
  context.info.params = s.functions[0].params;
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  ObjectMap objects(s, memory);
  LiveStep live(s, context, memory, objects, Reach());
  const auto match = [&](std::uint64_t scalar) {
    std::uint64_t pointer = kWeights;
    void* params[] = {&pointer, &scalar};
    Call c = call(CallKind::launch);
    c.function = FakeDriver::kKernel;
    c.grid = c.block = {1, 1, 1};
    c.kernel_params = params;
    return live.match(4, c);
  };
  EXPECT_EQ(match(1), nullptr);
  EXPECT_NE(match(kWeights + 8), nullptr);    // a pointer to memory that we know
  EXPECT_NE(match(0x7f0000000000), nullptr);  // and one to memory that we do not
  EXPECT_EQ(match(0x3f8000003f800000), nullptr) << "two floats";
}

// Two sizes side by side, or what padding was left with: the driver knows of no memory there.
TEST_F(StepPlayerTest, AWordThatLeadsNowhereMayLookLikeAnAddress) {
  Schedule s = schedule();
  s.functions[0].params = {{0, 8}, {8, 8}};
  struct Context final : CallContext {
    FunctionInfo info;
    const FunctionInfo& function(CUfunction) override { return info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  } context;
  context.info.name = "k";
  context.info.params = s.functions[0].params;
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  ObjectMap objects(s, memory);
  static int questions = 0;
  static CUdeviceptr known = 0;
  const Reach reach(
      [](void*, CUpointer_attribute, CUdeviceptr at) {
        ++questions;
        return at == known || at >= 0x7f0000000000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      },
      [](int* count) { return *count = 1, CUDA_SUCCESS; },
      [](int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; });
  LiveStep live(s, context, memory, objects, reach);
  const auto match = [&](std::uint64_t scalar) {
    std::uint64_t pointer = kWeights;
    void* params[] = {&pointer, &scalar};
    Call c = call(CallKind::launch);
    c.function = FakeDriver::kKernel;
    c.grid = c.block = {1, 1, 1};
    c.kernel_params = params;
    return live.match(4, c);
  };
  EXPECT_EQ(match(0x9500000095), nullptr);
  EXPECT_STREQ(match(0x7f0000000008), "what could be a pointer, where there was none");
  EXPECT_STREQ(match(kWeights + 8), "a pointer where there was none") << "whatever the driver says";
  EXPECT_EQ(match(0x9400000094), nullptr);
  // What the driver said holds until memory comes near, or code.
  const int before = questions;
  objects.changed();
  EXPECT_EQ(match(0x9500000095), nullptr);
  EXPECT_EQ(questions, before);
  known = 0x9500000095;
  memory.add({0x9500001000, 64, MemoryKind::device});
  objects.changed();
  EXPECT_STREQ(match(0x9500000095), "what could be a pointer, where there was none");
  known = 0x9400000094;
  memory.nearby().may_have_come();
  objects.changed();
  EXPECT_STREQ(match(0x9400000094), "what could be a pointer, where there was none");
}

// Where a count of pointers rests on other bytes of the parameters, these must stay.
TEST_F(StepPlayerTest, PinnedParametersMustNotChange) {
  Schedule s = schedule();
  s.functions[0].params = {{0, 8}, {8, 8}};
  s.ops[4].equal = {{10, {7, 0}}};
  s.ops[4].numbers = {8};
  struct Context final : CallContext {
    FunctionInfo info;
    const FunctionInfo& function(CUfunction) override { return info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  } context;
  context.info.name = "k";
  context.info.params = s.functions[0].params;
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  ObjectMap objects(s, memory);
  LiveStep live(s, context, memory, objects, Reach());
  const auto match = [&](std::uint64_t scalar) {
    std::uint64_t pointer = kWeights;
    void* params[] = {&pointer, &scalar};
    Call c = call(CallKind::launch);
    c.function = FakeDriver::kKernel;
    c.grid = c.block = {1, 1, 1};
    c.kernel_params = params;
    return live.match(4, c);
  };
  EXPECT_EQ(match(0x70001), nullptr);
  EXPECT_EQ(match(0x70002), nullptr);
  EXPECT_STREQ(match(0x80002), "parameters that must not change");
  EXPECT_STREQ(match(0x80002), "parameters that must not change") << "a second time, too";
}

// cuDNN passes structures whose padding holds whatever lay there.
TEST_F(StepPlayerTest, ABarriersParametersMayHoldAnything) {
  Schedule s = schedule();
  s.functions[0].params = {{0, 8}, {8, 8}};
  s.ops[4].barrier = true;
  s.ops[4].pointers.clear();
  FunctionInfo info;
  info.name = "k";
  info.params = s.functions[0].params;
  struct Context final : CallContext {
    const FunctionInfo* info;
    const FunctionInfo& function(CUfunction) override { return *info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  } context;
  context.info = &info;
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  ObjectMap objects(s, memory);
  LiveStep live(s, context, memory, objects, Reach());
  for (const std::uint64_t word : {std::uint64_t{0}, kWeights, std::uint64_t{0x7f0000000000}}) {
    std::uint64_t first = 0x7f1234567890, second = word;
    void* params[] = {&first, &second};
    Call c = call(CallKind::launch);
    c.grid = c.block = {1, 1, 1};
    c.kernel_params = params;
    EXPECT_EQ(live.match(4, c), nullptr);
    EXPECT_TRUE(live.changed(4));
    live.bound(4);
    EXPECT_EQ(live.match(4, c), nullptr);
    EXPECT_FALSE(live.changed(4)) << "the graph holds these bytes by now";
  }
}

TEST_F(StepPlayerTest, AWordThatIsKnownToBeANumberMayLookLikeAnything) {
  Schedule s = schedule();
  s.functions[0].params = {{0, 8}, {8, 8}};
  s.ops[4].numbers = {8};
  FunctionInfo info;
  info.name = "k";
  info.params = s.functions[0].params;
  struct Context final : CallContext {
    const FunctionInfo* info;
    const FunctionInfo& function(CUfunction) override { return *info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  } context;
  context.info = &info;
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  ObjectMap objects(s, memory);
  LiveStep live(s, context, memory, objects, Reach());
  for (std::uint64_t scalar : {std::uint64_t{0x7f0000000000}, kWeights + 8}) {
    std::uint64_t pointer = kWeights;
    void* params[] = {&pointer, &scalar};
    Call c = call(CallKind::launch);
    c.function = FakeDriver::kKernel;
    c.grid = c.block = {1, 1, 1};
    c.kernel_params = params;
    EXPECT_EQ(live.match(4, c), nullptr);
  }
}

// What was declared of a kernel holds for the image that was recorded.
TEST_F(StepPlayerTest, AKernelFromAnotherImageIsADivergence) {
  Schedule s = schedule();
  s.functions[0].self_contained = true;
  Schedule seen = schedule();  // what it was seen to do holds for just its code
  seen.functions[0].code = 5;
  Counters counters;
  StepPlayer player(s, driver_, api_, counters);
  Call c = call(CallKind::alloc_async);
  c.size = 64;
  EXPECT_FALSE(player.before(c));
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  ObjectMap objects(s, memory);
  LiveStep live(s, driver_, memory, objects, Reach());
  std::uint64_t pointer = kWeights;
  std::uint32_t number = 1;
  void* params[] = {&pointer, &number};
  Call launched = call(CallKind::launch);
  launched.function = FakeDriver::kKernel;
  launched.grid = launched.block = {1, 1, 1};
  launched.kernel_params = params;
  EXPECT_STREQ(live.match(4, launched), "a kernel of another build");
  ObjectMap more_objects(seen, memory);
  LiveStep other(seen, driver_, memory, more_objects, Reach());
  EXPECT_STREQ(other.match(4, launched), "a kernel of another build");
  seen.functions[0].code = 0;
  EXPECT_STRNE(other.match(4, launched), "a kernel of another build");
}

// Accesses rest on what a copy from the host carries: the same pointers, and no others.
TEST_F(StepPlayerTest, ATableMustLeadWhereItLed) {
  constexpr std::uint64_t kOther = 0x6000, kHost = 0x10;
  alignas(8) std::uint64_t table[4] = {};
  Schedule s = schedule();
  s.objects.push_back({MemoryKind::device, 32});
  s.objects.push_back({MemoryKind::device, 64});
  ScheduleOp& copy = s.ops[5];
  copy.kind = CallKind::copy;
  copy.dst = {2, 0, true};
  copy.width = sizeof table;
  copy.payload = {{8, {0, 0, false}}, {24, {3, 0, false}}};
  MemoryMap memory;
  memory.add({kWeights, 64, MemoryKind::device});
  memory.add({kOther, 64, MemoryKind::device});
  memory.add({0x7000, 32, MemoryKind::device});
  ObjectMap objects(s, memory);
  LiveStep live(s, driver_, memory, objects, Reach());
  const auto match = [&](std::vector<std::uint64_t> words, bool host = true) {
    objects.begin_step();
    std::copy(words.begin(), words.end(), table);
    Call c = call(CallKind::copy);
    c.dst.address = 0x7000;
    c.src.address = reinterpret_cast<std::uint64_t>(table);
    c.width = sizeof table;
    c.host_source = host;
    const char* const reason = live.match(5, c);
    return std::string(reason ? reason : "");
  };
  EXPECT_EQ(match({1, kWeights, kHost, kOther}), "");
  EXPECT_EQ(match({2, kWeights + 8, 0, kOther + 63}), "") << "elsewhere in the same objects";
  EXPECT_EQ(match({0, kOther, 0, kWeights}), "") << "two objects that swap their places";
  EXPECT_EQ(match({0, kWeights, 0, kOther}), "");
  EXPECT_EQ(match({0, kWeights, 0, kWeights}), "a table that leads to another object");
  EXPECT_EQ(match({0, kWeights, 0, 0}), "a table that leads to another object");
  EXPECT_EQ(match({kOther, kWeights, 0, kOther}), "a table with a pointer where there was none");
  EXPECT_EQ(match({0, kWeights, 0, kOther}, false), "a copy from other memory");
  // Pinned memory is the host's, whatever the entry point says.
  memory.add({reinterpret_cast<std::uint64_t>(table), sizeof table, MemoryKind::pinned});
  EXPECT_EQ(match({0, kWeights, 0, kOther}, false), "");
}

// Kernels may reach variables of their image that the program never asks for.
TEST_F(StepPlayerTest, AVariableIsFoundByTheKernelThatTouchesIt) {
  Schedule s = schedule();
  s.objects.push_back({MemoryKind::global, 16});
  s.functions[0].proven.emplace();
  s.functions[0].globals = {{"counter", 2, true, true}};
  FunctionInfo info;
  info.name = "k";
  info.params = s.functions[0].params;
  info.proof.emplace().globals = {{"counter", 0x8000, 16, true, true}};
  struct Context final : CallContext {
    const FunctionInfo* info;
    const FunctionInfo& function(CUfunction) override { return *info; }
    StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
    void* driver_symbol(const char*) override { return nullptr; }
  } context;
  context.info = &info;
  const auto match = [&] {
    MemoryMap memory;
    memory.add({kWeights, 64, MemoryKind::device});
    ObjectMap objects(s, memory);
    LiveStep live(s, context, memory, objects, Reach());
    std::uint64_t pointer = kWeights;
    std::uint32_t number = 1;
    void* params[] = {&pointer, &number};
    Call c = call(CallKind::launch);
    c.function = FakeDriver::kKernel;
    c.grid = c.block = {1, 1, 1};
    c.kernel_params = params;
    const char* const reason = live.match(4, c);
    EXPECT_EQ(objects.base(2), reason ? 0u : 0x8000u);
    return std::string(reason ? reason : "");
  };
  EXPECT_EQ(match(), "");
  info.proof->globals[0].bytes = 8;
  EXPECT_EQ(match(), "a variable at another place");
  info.proof->globals[0] = {"counter", 0x8000, 16, true, false};
  EXPECT_EQ(match(), "a kernel of which something else is proven");
  info.proof->globals.clear();
  EXPECT_EQ(match(), "a kernel of which something else is proven");
  info.proof->globals = {{"counter", 0x8000, 16, true, true}};
  info.proof->stored = {0};
  EXPECT_EQ(match(), "a kernel of which something else is proven");
}

TEST_F(StepPlayerTest, TexturesEndReplayWhereAccessesRestOnTheirAbsence) {
  for (const bool textures : {false, true}) {
    Schedule s = schedule();
    s.textures = textures;
    Counters counters;
    StepPlayer player(s, driver_, api_, counters);
    Call texture;
    texture.traced = texture.texture = true;
    texture.kind = CallKind::hidden;
    texture.note = "cuTexObjectCreate";
    player.after(texture, CUDA_SUCCESS);
    EXPECT_EQ(player.stood_aside().empty(), textures);
  }
}

// A graph of the program's may wait for an event whose record is held.
TEST_F(StepPlayerTest, AGraphOnAnotherStreamFlushesHeldRecords) {
  bind();
  const std::uint64_t t = alloc();
  set(t, 5);
  launch(t, 6);
  Call graph = call(CallKind::graph_launch, FakeDriver::kOther);
  make(graph);
  EXPECT_EQ(submitted(), Log{"passed"});
  record();
  make(graph);
  EXPECT_EQ(submitted(), (Log{"set 5", "launch 6", "record", "passed"}));
}

// Only ops that are held count as progress: a program that polls must not keep the watchdog quiet.
TEST_F(StepPlayerTest, PollingIsNoActivity) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  const auto before = player_.holding();
  EXPECT_NE(before, 0u);
  Call query = call(CallKind::event_synchronize);
  query.host = HostEffect::observe;
  query.query = true;
  query.event = reinterpret_cast<CUevent>(0x99);
  make(query);
  launch(kWeights, 1, FakeDriver::kKernel, FakeDriver::kOther);
  EXPECT_EQ(player_.holding(), before);
  launch(t, 1);
  EXPECT_NE(player_.holding(), before);
}

// The stream's end may be what lets its work go on: nothing may wait there.
TEST_F(StepPlayerTest, NothingWaitsWhenTheStreamEnds) {
  bind();
  step();
  const std::uint64_t kept = alloc();
  submitted();
  Call destroy;
  destroy.host = HostEffect::observe;
  destroy.ends = Ends::stream;
  destroy.stream = {FakeDriver::kStream, reinterpret_cast<std::uint64_t>(FakeDriver::kStream)};
  make(destroy);
  EXPECT_EQ(submitted(), (Log{"record", "passed"}));
  // Memory that was served outlives the stream, and its release needs the stream no more.
  free(kept, FakeDriver::kOther);
  EXPECT_EQ(submitted(), Log{});
}

TEST_F(StepPlayerTest, ErrorsOfTheDriverStandReplayAsideAndLoseNothing) {
  bind();
  step();
  submitted();
  driver_.refuse["graph"] = CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t t = alloc();
  first_part(t);
  EXPECT_EQ(submitted(), (Log{"set 1", "launch 1", "record", "launch 2"}));
  EXPECT_NE(player_.stood_aside(), "");
  // Memory that was served is still looked after.
  Call release = call(CallKind::free_async);
  release.address = t;
  EXPECT_EQ(player_.before_aside(release), CUDA_SUCCESS);
  EXPECT_EQ(player_.before_aside(release), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StepPlayerTest, ARefusedOpReachesTheProgram) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  driver_.refuse["set"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  Call c = call(CallKind::stream_synchronize);
  c.host = HostEffect::observe;
  EXPECT_EQ(make(c), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(player_.stood_aside(), "");
}

class PrioritiesTest : public StepPlayerTest {
 protected:
  PrioritiesTest() : StepPlayerTest(with_priorities()) {}

  static Schedule with_priorities() {
    Schedule s = schedule();
    s.ops[2].priority = 2;
    s.ops[6].priority = kMaxPriority;
    return s;
  }
  // What building the graphs of a step comes to.
  Log built() {
    step();
    driver_.log.clear();
    step();
    Log result;
    for (const std::string& entry : driver_.log)
      if (entry.starts_with("priority") || entry.starts_with("instantiate")) result.push_back(entry);
    return result;
  }
};

// Above the stream's own priority, -2, as far as the device goes; of kernels alone.
TEST_F(PrioritiesTest, KernelsGetThoseOfTheSchedule) {
  EXPECT_EQ(built(), (Log{"priority -4", "priority -2", "instantiate_with_priorities", "priority -5", "priority -2",
                          "instantiate_with_priorities"}));
}

TEST_F(PrioritiesTest, WhereTheDriverHasNoneTheGraphsDoWithout) {
  driver_.refuse["instantiate_with_priorities"] = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(built(), (Log{"priority -4", "priority -2", "instantiate", "priority -5", "priority -2", "instantiate"}));
}

TEST_F(PrioritiesTest, WhereANodeTakesNoneTheGraphDoesWithout) {
  driver_.refuse["priority"] = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(built(), (Log{"instantiate", "instantiate"}));
}

TEST_F(StepPlayerTest, NoGraphsNoReplay) {
  bind();
  driver_.refuse["instantiate"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(alloc(), kPool);
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, CapturesAreLeftAlone) {
  bind();
  Call begin = call(CallKind::capture_begin);
  begin.host = HostEffect::observe;
  make(begin);
  step();
  EXPECT_EQ(submitted(), Log(10, "passed"));
  Call end = call(CallKind::capture_end);
  make(end);
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
}

// A second stream's call that ends no capture must not end the first one's, nor one that fails.
TEST_F(StepPlayerTest, ACaptureThatGoesOnIsStillLeftAlone) {
  bind();
  driver_.capturing = {FakeDriver::kOther};
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  begin.host = HostEffect::observe;
  make(begin);
  Call end = call(CallKind::capture_end, FakeDriver::kOther);
  EXPECT_FALSE(player_.before(end));
  player_.after(end, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  Call elsewhere = call(CallKind::capture_end, FakeDriver::kStream);
  EXPECT_FALSE(player_.before(elsewhere));
  player_.after(elsewhere, CUDA_ERROR_ILLEGAL_STATE);
  Call again = call(CallKind::capture_begin, FakeDriver::kOther);
  EXPECT_FALSE(player_.before(again));
  player_.after(again, CUDA_ERROR_ILLEGAL_STATE);
  submitted();
  step();
  EXPECT_EQ(submitted(), Log(9, "passed"));
  // One that was invalidated ends in an error, and is over.
  driver_.capturing = {};
  EXPECT_FALSE(player_.before(end));
  player_.after(end, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
}

// From the moment that the program asks for a capture, before the driver has answered: a capture forbids what binding
// does.
TEST_F(StepPlayerTest, NothingIsBoundWhileACaptureBegins) {
  step();
  submitted();
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  EXPECT_FALSE(player_.before(begin));
  step();
  EXPECT_EQ(submitted(), Log(9, "passed"));
  player_.after(begin, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  step();
  EXPECT_NE(submitted(), Log(9, "passed"));
}

// What a stream that captures frees is freed when the graph runs.
TEST_F(StepPlayerTest, ACapturedFreeIsNotAnswered) {
  bind();
  const std::uint64_t t = alloc();
  driver_.capturing = {FakeDriver::kOther};
  Call begin = call(CallKind::capture_begin, FakeDriver::kOther);
  begin.host = HostEffect::observe;
  make(begin);
  Call release = call(CallKind::free_async, FakeDriver::kOther);
  release.address = t;
  EXPECT_FALSE(player_.before(release));
}

// Some calls show only by their result that something is hidden: what is held must not be lost.
TEST_F(StepPlayerTest, WhatIsHeldGoesOutBeforeReplayStandsAside) {
  bind();
  set(alloc());
  submitted();
  Call late;
  late.traced = true;
  late.kind = CallKind::hidden;
  late.note = "something";
  player_.after(late, CUDA_SUCCESS);
  EXPECT_EQ(submitted(), Log{"set 1"});
  EXPECT_NE(player_.stood_aside(), "");
  EXPECT_EQ(player_.holding(), 0u);
}

TEST_F(StepPlayerTest, MemoryThatOthersReachEndsReplay) {
  bind();
  set(alloc());
  submitted();
  allocated(0xa000, 64, MemoryKind::external);
  EXPECT_EQ(submitted(), Log{"set 1"});
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, AFailedCallHidesNothing) {
  bind();
  Call failed;
  failed.traced = true;
  failed.kind = CallKind::hidden;
  failed.note = "something";
  EXPECT_FALSE(player_.before(failed));
  player_.after(failed, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, AnotherContextsEndChangesNothing) {
  bind();
  Call end;
  end.traced = true;
  end.kind = CallKind::context_end;
  end.context = reinterpret_cast<CUcontext>(0x80);
  EXPECT_FALSE(player_.before(end));
  player_.after(end, CUDA_SUCCESS);
  EXPECT_EQ(player_.stood_aside(), "");
  submitted();
  step();
  EXPECT_EQ(submitted(), (Log{"graph", "passed", "graph"}));
  // A primary context's end shows only afterwards.
  end.context = reinterpret_cast<CUcontext>(0x8);
  player_.after(end, CUDA_SUCCESS);
  EXPECT_NE(player_.stood_aside(), "");
}

TEST_F(StepPlayerTest, UnloadedCodeIsBoundAnew) {
  bind();
  step();
  Call unload;
  unload.host = HostEffect::observe;
  unload.ends = Ends::code;
  make(unload);
  submitted();
  step();
  EXPECT_EQ(submitted(), Log(9, "passed"));
  step();
  // The arena may be used on another stream now: it comes after what was on the old one.
  EXPECT_EQ(submitted(), (Log{"wait", "graph", "passed", "graph"}));
}

TEST_F(StepPlayerTest, OtherStreamsDoNotDisturbTheStep) {
  bind();
  const std::uint64_t t = alloc();
  set(t);
  launch(kWeights, 50, FakeDriver::kKernel, FakeDriver::kOther);
  launch(t, 1);
  record();
  launch(kWeights, 2);
  EXPECT_EQ(submitted(), (Log{"passed", "graph"}));
}

TEST_F(StepPlayerTest, MemoryFreedOnAnotherStreamIsOrderedBeforeItsNextUse) {
  bind();
  const std::uint64_t t = alloc();
  first_part(t);
  submitted();
  free(t, FakeDriver::kOther);
  EXPECT_EQ(submitted(), (Log{"record", "wait"}));
}

TEST_F(StepPlayerTest, AddressRangesAreTheProgramsAllocations) {
  bind();
  const std::uint64_t t = alloc();
  Call c;
  c.address_range = true;
  c.address = t + 10;
  EXPECT_EQ(player_.before(c), CUDA_SUCCESS);
  EXPECT_EQ(c.address, t);
  EXPECT_EQ(c.size, 64u);
  c.address = kWeights;
  EXPECT_FALSE(player_.before(c).has_value());
}

// alloc A; set A; free A; alloc B; set B; free B, where A and B have the same bytes, B beyond those of A as well.
class PackedPlanTest : public StepPlayerTest {
 protected:
  PackedPlanTest() : StepPlayerTest(packed()) {}

  static Schedule packed() {
    Schedule s;
    s.objects = {{MemoryKind::stream_ordered, 64, true, 0}, {MemoryKind::stream_ordered, 512, true, 0}};
    s.arena_bytes = 512;
    for (const std::uint32_t object : {0u, 1u}) {
      for (const CallKind kind : {CallKind::alloc_async, CallKind::set, CallKind::free_async}) {
        ScheduleOp& op = s.ops.emplace_back();
        op.kind = kind;
        op.submit = kind == CallKind::set ? Submit::graph : Submit::plan;
        if (kind == CallKind::set) {
          op.segment = 0;
          op.dst = {object, 0, false};
          op.width = 64;
          op.element = 4;
        } else {
          op.object = object;
          op.size = kind == CallKind::alloc_async ? s.objects[object].size : 0;
        }
      }
    }
    s.segments = {{1, 4, 1, 0, {{1, 4}}, {1, 4}}};
    return s;
  }
  void step() {
    const std::uint64_t a = alloc(64);
    set(a);
    free(a);
    const std::uint64_t b = alloc(512);
    set(b);
    free(b);
  }
};

TEST_F(PackedPlanTest, ObjectsThatShareBytesAreServedOneAfterTheOther) {
  step();
  submitted();
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t a = alloc(64);
    EXPECT_EQ(a, FakeDriver::kArena);
    set(a);
    free(a);
    const std::uint64_t b = alloc(512);
    EXPECT_EQ(b, FakeDriver::kArena);
    Call range;
    range.address_range = true;
    range.address = b + 8;
    EXPECT_EQ(player_.before(range), CUDA_SUCCESS);
    EXPECT_EQ(range.size, 512u) << "of the one that the program has at the moment";
    set(b);
    free(b);
    range.address = b + 8;
    EXPECT_EQ(player_.before(range), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(submitted(), Log{"graph"});
  }
  EXPECT_EQ(counters_.steps_replayed, 3u);
  EXPECT_EQ(counters_.divergences.size(), 0u);
}

// A step keeps B beyond its end: the next one must not put A where it lies.
TEST_F(PackedPlanTest, MemoryThatIsKeptIsNotServedUnderAnotherName) {
  step();
  const std::uint64_t a = alloc(64);
  set(a);
  free(a);
  const std::uint64_t kept = alloc(512);
  set(kept);
  EXPECT_EQ(kept, FakeDriver::kArena);
  submitted();
  EXPECT_EQ(alloc(64), kPool);
  free(kPool);
  free(kept);
  EXPECT_EQ(alloc(64), FakeDriver::kArena);
}

}  // namespace
}  // namespace nimble
