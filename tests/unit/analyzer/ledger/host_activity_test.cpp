#include "analyzer/ledger/host_activity.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

TraceCall call(CallKind kind, double begin_us, double us, std::uint32_t thread = 1) {
  TraceCall result;
  result.kind = kind;
  result.thread = thread;
  result.host_begin_us = begin_us;
  result.host_duration_us = us;
  return result;
}

// What `target`'s thread did from 0 to 100.
std::vector<Loss> split(const Trace& trace, std::uint32_t target) {
  const Loss loss{.begin_us = 0, .end_us = 100, .idle = true};
  std::vector<Loss> parts;
  HostActivity(trace, 0, 100).split(loss, target, parts);
  double at = 0;
  for (const Loss& part : parts) {
    EXPECT_EQ(part.begin_us, at);
    at = part.end_us;
  }
  EXPECT_EQ(at, 100);
  return parts;
}

TEST(HostActivity, CodeCallsAndWaits) {
  Trace trace;
  trace.calls = {call(CallKind::launch, -5, 3), call(CallKind::alloc, 10, 20),
                 call(CallKind::stream_synchronize, 40, 10), call(CallKind::launch, 50, 5, 2),
                 call(CallKind::launch, 90, 20)};
  const auto parts = split(trace, 4);
  ASSERT_EQ(parts.size(), 6u);
  const LossCause causes[] = {LossCause::host_code, LossCause::host_call, LossCause::host_code,
                              LossCause::host_wait, LossCause::host_code, LossCause::host_call};
  const double ends[] = {10, 30, 40, 50, 90, 100};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].cause, causes[i]) << i;
    EXPECT_EQ(parts[i].end_us, ends[i]) << i;
  }
  EXPECT_EQ(parts[1].call, 1u);
  EXPECT_EQ(parts[0].call, 4u);  // what it came before
}

TEST(HostActivity, ACallWithinAnotherHidesNothing) {
  Trace trace;
  trace.calls = {call(CallKind::alloc, -30, 90), call(CallKind::alloc, -20, 5), call(CallKind::alloc, 70, 10),
                 call(CallKind::launch, 100, 1)};
  const auto parts = split(trace, 3);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].cause, LossCause::host_call);
  EXPECT_EQ(parts[0].call, 0u);
  EXPECT_EQ(parts[0].end_us, 60);
}

TEST(HostActivity, WithoutCallsItIsTheProgramsCode) {
  Trace trace;
  trace.calls = {call(CallKind::launch, 500, 1)};
  const auto parts = split(trace, 0);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].cause, LossCause::host_code);
}

}  // namespace
}  // namespace nimble::analyzer
