#include "replayer/onlookers/touched.h"

#include <gtest/gtest.h>

#include "tests/unit/replayer/fake_driver.h"

namespace nimble {
namespace {

constexpr std::uint64_t kHere = 0x7f0000000000, kThere = 0x7f0000100000;

Touched of(Call call) {
  FakeDriver driver;
  return touched_by(call, driver);
}

TEST(Touched, ACopyReadsItsSourceAndWritesItsTarget) {
  Call call;
  call.kind = CallKind::copy;
  call.transfer.dst = {kHere, 64};
  call.transfer.src = {kThere, 16};
  call.transfer.width = 8;
  call.transfer.height = 3;
  const Touched touched = of(call);
  ASSERT_EQ(touched.count, 2u);
  EXPECT_EQ(touched.list[0], (MemoryRange{kHere, kHere + 2 * 64 + 8, true}));
  EXPECT_EQ(touched.list[1], (MemoryRange{kThere, kThere + 2 * 16 + 8, false}));
  EXPECT_FALSE(touched.anything || touched.variables);
  call.transfer.height = 0;
  EXPECT_TRUE(of(call).none());
}

TEST(Touched, ASetWrites) {
  Call call;
  call.kind = CallKind::set;
  call.transfer.dst = {kHere, 0};
  call.transfer.width = 12;
  const Touched touched = of(call);
  ASSERT_EQ(touched.count, 1u);
  EXPECT_EQ(touched.list[0], (MemoryRange{kHere, kHere + 12, true}));
}

TEST(Touched, AKernelTouchesWhatItsParametersLeadToAndPerhapsVariables) {
  FakeDriver driver;
  std::uint64_t pointer = kHere;
  std::uint32_t number = 7;
  void* parameters[] = {&pointer, &number};
  Call call;
  call.kind = CallKind::launch;
  call.launch.function = FakeDriver::kKernel;
  call.launch.kernel_params = parameters;
  Touched touched = touched_by(call, driver);
  EXPECT_TRUE(touched.variables);
  EXPECT_FALSE(touched.anything);
  const auto leads_to = [&](std::uint64_t address) {
    for (const MemoryRange& range : touched.ranges())
      if (range == MemoryRange{address, address + 1, true}) return true;
    return false;
  };
  EXPECT_TRUE(leads_to(kHere));
  pointer = 100;  // a number
  touched = touched_by(call, driver);
  EXPECT_FALSE(leads_to(100));
}

TEST(Touched, OfTheRestAllOrNothingIsTouched) {
  for (const CallKind kind : {CallKind::graph_launch, CallKind::opaque}) {
    Call call;
    call.kind = kind;
    EXPECT_TRUE(of(call).anything) << name(kind);
  }
  for (const CallKind kind : {CallKind::host_function, CallKind::event_record, CallKind::event_wait}) {
    Call call;
    call.kind = kind;
    EXPECT_TRUE(of(call).none()) << name(kind);
  }
  Touched many;
  for (std::uint32_t i = 0; i <= Touched::kMost; ++i) {
    EXPECT_FALSE(many.anything);
    many.add({kHere + i * 64, kHere + i * 64 + 1, false});
  }
  EXPECT_TRUE(many.anything);
}

TEST(Touched, RangesConflictWhereTheyHaveAByteInCommonThatIsWritten) {
  const MemoryRange sorted[] = {{10, 20, false}, {20, 30, true}, {40, 50, false}};
  EXPECT_FALSE(conflict(MemoryRange{10, 20, false}, sorted));
  EXPECT_TRUE(conflict(MemoryRange{10, 11, true}, sorted));
  EXPECT_TRUE(conflict(MemoryRange{10, 21, false}, sorted));
  EXPECT_FALSE(conflict(MemoryRange{30, 40, true}, sorted));
  EXPECT_FALSE(conflict(MemoryRange{50, 60, true}, sorted));
  EXPECT_TRUE(conflict(MemoryRange{0, 100, false}, sorted));
}

}  // namespace
}  // namespace nimble
