#include "analyzer/step/thread_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

// What two threads do, each with a stream of its own: sets, memory that comes and goes, and events by which each
// waits for the other now and then. `value` tells the calls apart.
struct Program {
  std::array<std::vector<TraceCall>, 2> threads;

  explicit Program(Random& random, int steps) {
    for (int step = 0; step < steps; ++step)
      for (std::uint32_t t : {0u, 1u}) {
        const std::uint32_t other = 1 - t;
        if (step > 0 || t == 1) add(t, CallKind::event_wait, other);
        const std::uint64_t memory = 0x1000 + 0x1000 * t;
        add(t, CallKind::alloc_async).address = memory;
        for (std::uint32_t i = 0, count = 1 + static_cast<std::uint32_t>(random() % 4); i <= count; ++i)
          add(t, CallKind::set);
        add(t, CallKind::event_record, t);
        for (std::uint32_t i = 0; i < 3; ++i) add(t, CallKind::set);
        add(t, CallKind::free_async).address = memory;
      }
  }

  // One of the orders in which the calls may come: a wait comes after its record.
  Trace recorded(Random& random) const {
    Trace trace;
    trace.streams = {{0, StreamKind::non_blocking, kNone}, {0, StreamKind::non_blocking, kNone}};
    std::array<std::size_t, 2> next{};
    std::array<std::uint32_t, 2> records{}, waits{};
    while (next[0] < threads[0].size() || next[1] < threads[1].size()) {
      const std::uint32_t t = static_cast<std::uint32_t>(random() % 2);
      if (next[t] == threads[t].size()) continue;
      const TraceCall& call = threads[t][next[t]];
      if (call.kind == CallKind::event_wait && records[call.event] == waits[t]) continue;
      if (call.kind == CallKind::event_wait) ++waits[t];
      if (call.kind == CallKind::event_record && records[t] > waits[1 - t])
        continue;  // the other waits for the last one
      if (call.kind == CallKind::event_record) ++records[t];
      trace.calls.push_back(call);
      trace.calls.back().seq = trace.calls.size();
      ++next[t];
    }
    return trace;
  }

 private:
  TraceCall& add(std::uint32_t thread, CallKind kind, std::uint32_t event = kNone) {
    TraceCall call;
    call.kind = kind;
    call.thread = thread;
    call.stream = thread;
    call.event = event;
    call.size = 256;
    call.value = count_++;
    call.memory = MemoryKind::stream_ordered;
    threads[thread].push_back(call);
    return threads[thread].back();
  }
  std::uint32_t count_ = 0;
};

std::vector<std::uint32_t> names(const Trace& trace) {
  std::vector<std::uint32_t> result;
  for (const TraceCall& call : trace.calls) result.push_back(call.value);
  return result;
}

TEST(ThreadOrder, RestsOnTheProgramAlone) {
  Random random(3);
  int reordered = 0;
  for (int round = 0; round < 200; ++round) {
    const Program program(random, 4);
    Trace first = program.recorded(random), second = program.recorded(random);
    reordered += names(first) != names(second);
    order_threads(first);
    order_threads(second);
    ASSERT_EQ(names(first), names(second)) << "round " << round;
  }
  EXPECT_GT(reordered, 150);
}

TEST(ThreadOrder, KeepsTheOrderOfEachThreadStreamAndEvent) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    const Program program(random, 4);
    const Trace before = program.recorded(random);
    Trace after = before;
    order_threads(after);
    std::vector<std::uint32_t> sorted = names(before), again = names(after);
    std::map<std::uint32_t, std::size_t> place;
    for (std::size_t i = 0; i < again.size(); ++i) place[again[i]] = i;
    ASSERT_EQ(place.size(), sorted.size());
    for (std::size_t a = 0; a < before.calls.size(); ++a)
      for (std::size_t b = a + 1; b < before.calls.size(); ++b) {
        const TraceCall &one = before.calls[a], &other = before.calls[b];
        if (one.thread != other.thread && (one.event == kNone || one.event != other.event)) continue;
        ASSERT_LT(place[one.value], place[other.value]) << "round " << round;
      }
  }
}

TEST(ThreadOrder, MemoryIsUsedBetweenItsBirthAndItsEnd) {
  // The second thread gives memory that the first one uses, and gives the same address out again.
  Trace trace;
  trace.streams = {{0, StreamKind::non_blocking, kNone}, {0, StreamKind::non_blocking, kNone}};
  const auto add = [&](std::uint32_t thread, CallKind kind, std::uint64_t address = 0) {
    TraceCall call;
    call.kind = kind;
    call.thread = thread;
    call.stream = thread;
    call.address = address;
    call.dst.address = kind == CallKind::set ? address : 0;
    call.address = kind == CallKind::set ? 0 : address;
    call.size = call.width = 64;
    call.value = static_cast<std::uint32_t>(trace.calls.size());
    trace.calls.push_back(call);
  };
  for (int i = 0; i < 8; ++i) add(0, CallKind::event_record);
  add(1, CallKind::alloc_async, 0x1000);
  add(0, CallKind::set, 0x1000);
  add(1, CallKind::free_async, 0x1000);
  add(1, CallKind::alloc_async, 0x1000);
  add(0, CallKind::set, 0x1000);
  const std::vector<std::uint32_t> as_it_was = names(trace);
  order_threads(trace);
  EXPECT_EQ(names(trace), as_it_was);
}

TEST(ThreadOrder, OneThreadsWorkStaysAsItWas) {
  Random random(5);
  Program program(random, 2);
  for (TraceCall& call : program.threads[1]) call.thread = 0;
  EXPECT_TRUE(thread_order(program.recorded(random)).empty());
}

}  // namespace
}  // namespace nimble::analyzer
