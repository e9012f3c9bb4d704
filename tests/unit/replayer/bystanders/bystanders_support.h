// What the tests of calls that bypass the player share: schedules that begin in different ways, and calls by stream.
#pragma once

#include <cstdint>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/schedule_support.h"

namespace nimble {

constexpr std::uint64_t kArenaBytes = 256;
// The default stream of FakeDriver's context.
inline const StreamRef kLegacy{CU_STREAM_LEGACY, 0x8 | 1};

inline StreamRef stream(CUstream handle) { return {handle, reinterpret_cast<std::uint64_t>(handle)}; }

enum class First { alloc, launch, direct_launch };

// launch T; set T; record; launch W | host function | launch W, launch T. T is step-local where the step begins with
// its allocation, and ends with its release; else it is a buffer of the program's. Before the first graph there may be
// a launch that goes into none: of that no function is known.
inline Schedule schedule(First first) {
  const bool step_local = first == First::alloc;
  Schedule s;
  s.functions = {{"k", {{0, 8}, {8, 4}}}};
  s.objects = {{MemoryKind::device, 64}, {MemoryKind::device, 128}};
  if (step_local) s.objects[1] = {MemoryKind::stream_ordered, 128, true, 0};
  if (step_local) s.arena_bytes = kArenaBytes;
  const auto op = [&](CallKind kind, Submit submit, std::uint32_t segment = kNone) -> ScheduleOp& {
    return add_op(s, kind, submit, segment);
  };
  const auto launch = [&](std::uint32_t segment, std::uint32_t object) { add_launch(s, segment, object); };
  if (step_local) {
    ScheduleOp& alloc = op(CallKind::alloc_async, Submit::plan);
    alloc.object = 1;
    alloc.size = 128;
  }
  if (first == First::direct_launch) op(CallKind::launch, Submit::direct);
  launch(0, 1);
  ScheduleOp& set = op(CallKind::set, Submit::graph, 0);
  set.dst = {1, 0, false};
  set.width = 64;
  set.element = 4;
  op(CallKind::event_record, Submit::graph, 0);
  launch(0, 0);
  op(CallKind::host_function, Submit::direct);
  launch(1, 0);
  launch(1, 1);
  if (step_local) op(CallKind::free_async, Submit::plan).object = 1;
  const std::uint32_t a = first == First::launch ? 0 : 1, b = a + 5;
  s.segments = {{a, a + 3, 1, 0, {{a, a + 1}, {a + 1, a + 2}}, {a, a + 1, a + 2, a + 3}},
                {b, b + 1, 1, 0, {{b, b + 1}}, {b, b + 1}}};
  return s;
}

inline Call op(CallKind kind, StreamRef on, HostEffect host = HostEffect::async) {
  Call c;
  c.kind = kind;
  c.traced = true;
  c.host = host;
  c.has_stream = true;
  c.stream = on;
  return c;
}

}  // namespace nimble
