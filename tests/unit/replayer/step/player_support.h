// What the tests of StepPlayer and of its OpMatch share: a small schedule, calls that a program makes of it, and a
// player between such a program and FakeDriver.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/step/step_player.h"
#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/schedule_support.h"

namespace nimble {

using Log = std::vector<std::string>;

constexpr std::uint64_t kWeights = 0x5000;  // where the program has the schedule's buffer W

// alloc T; set T; launch T; record; launch W | launch W, launch T; free T. Two segments, cut by a host function.
inline Schedule schedule() {
  Schedule s;
  s.functions = {{"k", {{0, 8}, {8, 4}}}};
  s.objects = {{MemoryKind::device, 64}, {MemoryKind::stream_ordered, 64, true, 0}};
  s.arena_bytes = 256;
  const auto op = [&](CallKind kind, Submit submit, std::uint32_t segment = kNone) -> ScheduleOp& {
    return add_op(s, kind, submit, segment);
  };
  const auto launch = [&](std::uint32_t segment, std::uint32_t object) { add_launch(s, segment, object); };
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

// A traced call on a stream, which the host does not wait for.
inline Call call(CallKind kind, CUstream stream = FakeDriver::kStream) {
  Call c;
  c.kind = kind;
  c.traced = true;
  c.host = HostEffect::async;
  c.has_stream = true;
  c.stream = {stream, reinterpret_cast<std::uint64_t>(stream)};
  return c;
}

class StepPlayerTest : public testing::Test {
 protected:
  explicit StepPlayerTest(Schedule s = schedule()) : player_(std::move(s), driver_, api_, counters_) {}

  static constexpr std::uint64_t kPool = 0x9000;  // what the driver answers to an allocation

  void SetUp() override { allocated(kWeights, 64, MemoryKind::device); }

  // Makes the call; what passes to the driver is logged as "passed".
  CUresult make(Call& c, CUresult driver_says = CUDA_SUCCESS) {
    if (const auto answer = player_.before(c)) return *answer;
    driver_.log.push_back("passed");
    if (c.kind == CallKind::alloc_async) c.memory.address = kPool;
    player_.after(c, driver_says);
    return player_.errors().tell(c, driver_says);
  }
  void allocated(std::uint64_t base, std::uint64_t size, MemoryKind memory) {
    Call c = call(CallKind::alloc);
    c.memory.address = base;
    c.memory.size = size;
    c.memory.kind = memory;
    player_.after(c, CUDA_SUCCESS);
  }
  std::uint64_t alloc(std::uint64_t size = 64) {
    Call c = call(CallKind::alloc_async);
    c.memory.kind = MemoryKind::stream_ordered;
    c.memory.size = size;
    make(c);
    return c.memory.address;
  }
  CUresult set(std::uint64_t address, std::uint32_t value = 1, CUresult driver_says = CUDA_SUCCESS) {
    Call c = call(CallKind::set);
    c.transfer.dst.address = address;
    c.transfer.width = 64;
    c.transfer.element = 4;
    c.transfer.value = value;
    return make(c, driver_says);
  }
  CUresult launch(std::uint64_t pointer, std::uint32_t number, CUfunction function = FakeDriver::kKernel,
                  CUstream stream = FakeDriver::kStream, std::uint32_t grid = 1) {
    Call c = call(CallKind::launch, stream);
    void* params[] = {&pointer, &number};
    c.launch.function = function;
    c.launch.grid = {grid, 1, 1};
    c.launch.block = {1, 1, 1};
    c.launch.kernel_params = params;
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
    c.memory.address = address;
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

}  // namespace nimble
