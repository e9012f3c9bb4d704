// Which op runs after which: streams, default streams, events; and that a missing order is found.
#include <set>
#include <thread>

#include "fixture.h"

namespace {

using Ordering = Simcuda;
using Digits = unsigned long long;

TEST_F(Ordering, WorkRunsLate) {
  const CUdeviceptr number = zeros(8);
  const CUstream s = stream();
  OK(append(s, number, 7));
  EXPECT_EQ(peek<Digits>(number), 0u);
  EXPECT_EQ(simcuda_pending(), 1u);
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<Digits>(number), 7u);
}

TEST_F(Ordering, OneStreamKeepsItsOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    simcuda_set_seed(seed);
    const CUdeviceptr number = zeros(8);
    const CUstream s = stream();
    for (int digit = 1; digit <= 9; ++digit) OK(append(s, number, digit));
    OK(cuStreamSynchronize(s));
    EXPECT_EQ(peek<Digits>(number), 123456789u) << seed;
  }
}

// Two streams, and nothing between them: any interleaving may happen, and many do.
TEST_F(Ordering, SeedsFindAMissingDependency) {
  std::set<Digits> results;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simcuda_set_seed(seed);
    const CUdeviceptr number = zeros(8);
    const CUstream a = stream(), b = stream();
    OK(append(a, number, 1));
    OK(append(b, number, 2));
    OK(append(a, number, 3));
    OK(append(b, number, 4));
    OK(cuCtxSynchronize());
    const Digits result = peek<Digits>(number);
    results.insert(result);
    EXPECT_TRUE(seed != 0 || result == 1234) << result;  // program order
  }
  EXPECT_GE(results.size(), 4u);
  for (const Digits legal : results) {
    EXPECT_TRUE(std::set<Digits>({1234, 1243, 1324, 2134, 2143, 2413}).count(legal)) << legal;
  }
}

TEST_F(Ordering, SameSeedSameOrder) {
  std::vector<Digits> results;
  for (int round = 0; round < 2; ++round) {
    simcuda_set_seed(1234);
    const CUdeviceptr number = zeros(8);
    const CUstream a = stream(), b = stream();
    for (int digit = 1; digit < 9; ++digit) OK(append(digit % 2 != 0 ? a : b, number, digit));
    OK(cuCtxSynchronize());
    results.push_back(peek<Digits>(number));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(Ordering, AnEventOrdersTwoStreams) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simcuda_set_seed(seed);
    const CUdeviceptr number = zeros(8);
    const CUstream a = stream(), b = stream();
    const CUevent e = event();
    OK(append(a, number, 1));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(append(b, number, 2));
    OK(cuCtxSynchronize());
    EXPECT_EQ(peek<Digits>(number), 12u) << seed;
  }
}

// A wait is for the record that was the last when the wait was called.
TEST_F(Ordering, AWaitIsForTheRecordBeforeIt) {
  const CUdeviceptr number = zeros(8);
  const CUstream a = stream(), b = stream();
  const CUevent e = event();
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(append(a, number, 1));
  OK(cuEventRecord(e, a));
  OK(append(b, number, 2));
  OK(cuStreamSynchronize(b));
  EXPECT_EQ(peek<Digits>(number) % 10, 2u);
}

TEST_F(Ordering, WaitForAnEventThatWasNeverRecorded) {
  const CUstream s = stream();
  OK(cuStreamWaitEvent(s, event(), 0));
  OK(cuStreamSynchronize(s));
}

TEST_F(Ordering, LegacyStreamSynchronisesWithBlockingStreams) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simcuda_set_seed(seed);
    const CUdeviceptr number = zeros(8);
    const CUstream a = stream(CU_STREAM_DEFAULT), b = stream(CU_STREAM_DEFAULT);
    OK(append(a, number, 1));
    OK(append(nullptr, number, 2));
    OK(append(b, number, 3));
    OK(append(CU_STREAM_LEGACY, number, 4));
    OK(append(CU_STREAM_PER_THREAD, number, 5));
    OK(append(nullptr, number, 6));
    OK(cuCtxSynchronize());
    EXPECT_EQ(peek<Digits>(number), 123456u) << seed;
  }
}

TEST_F(Ordering, LegacyStreamLeavesNonBlockingStreamsAlone) {
  std::set<Digits> results;
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    simcuda_set_seed(seed);
    const CUdeviceptr number = zeros(8);
    const CUstream s = stream(CU_STREAM_NON_BLOCKING);
    OK(append(s, number, 1));
    OK(append(nullptr, number, 2));
    OK(cuCtxSynchronize());
    results.insert(peek<Digits>(number));
  }
  EXPECT_EQ(results, std::set<Digits>({12, 21}));
}

TEST_F(Ordering, SynchronisingTheLegacyStreamWaitsForBlockingStreams) {
  const CUdeviceptr number = zeros(8);
  OK(append(stream(CU_STREAM_DEFAULT), number, 1));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(peek<Digits>(number), 1u);
}

TEST_F(Ordering, EachThreadHasADefaultStreamOfItsOwn) {
  const CUdeviceptr number = zeros(8);
  unsigned long long here = 0, there = 0;
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &here));
  std::thread other([&] {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &there));
    OK(append(CU_STREAM_PER_THREAD, number, 3));
  });
  other.join();
  EXPECT_NE(here, there);
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));  // of this thread: says nothing about the other's
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(peek<Digits>(number), 3u);
}

TEST_F(Ordering, PerThreadSymbolsTakeZeroAsThePerThreadStream) {
  using Query = CUresult (*)(CUstream, unsigned long long*);
  void *legacy = nullptr, *per_thread = nullptr;
  OK(cuGetProcAddress("cuStreamGetId", &legacy, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr));
  OK(cuGetProcAddress("cuStreamGetId", &per_thread, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
  unsigned long long zero = 0, zero_per_thread = 0, explicit_per_thread = 0;
  OK(reinterpret_cast<Query>(legacy)(nullptr, &zero));
  OK(reinterpret_cast<Query>(per_thread)(nullptr, &zero_per_thread));
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &explicit_per_thread));
  EXPECT_NE(zero, zero_per_thread);
  EXPECT_EQ(explicit_per_thread, zero_per_thread);
}

TEST_F(Ordering, PollingEnds) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    simcuda_set_seed(seed);
    const CUdeviceptr number = zeros(8);
    const CUstream s = stream();
    const CUevent e = event();
    for (int i = 0; i < 20; ++i) OK(append(s, number, 1));
    OK(cuEventRecord(e, s));
    EXPECT_EQ(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    int polls = 0;
    while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) ASSERT_LT(++polls, 1000);
    EXPECT_EQ(cuStreamQuery(s), CUDA_SUCCESS);
  }
}

// However much is queued, it does not grow without bound.
TEST_F(Ordering, TheQueueIsBounded) {
  const CUdeviceptr memory = zeros(64);
  const CUstream s = stream();
  for (int i = 0; i < 20000; ++i) OK(launch("fill", s, 1, 1, memory, i, 1));
  EXPECT_LE(simcuda_pending(), 8192u);
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(peek<int>(memory), 19999);
}

TEST_F(Ordering, HostFunctionsRunInOrderAndWithoutTheLock) {
  const CUdeviceptr number = zeros(8);
  const CUstream s = stream();
  struct Seen {
    CUdeviceptr number;
    Digits value = 0;
    std::uint64_t pending = 0;
    CUresult nested = CUDA_SUCCESS;
  } seen{number};
  OK(append(s, number, 1));
  OK(cuLaunchHostFunc(
      s,
      [](void* data) {
        auto* out = static_cast<Seen*>(data);
        out->value = peek<Digits>(out->number);
        out->pending = simcuda_pending();  // takes the driver's lock
        out->nested = cuCtxSynchronize();
      },
      &seen));
  OK(append(s, number, 2));
  OK(cuStreamSynchronize(s));
  EXPECT_EQ(seen.value, 1u);
  EXPECT_EQ(seen.pending, 2u);
  EXPECT_EQ(seen.nested, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(peek<Digits>(number), 12u);
}

TEST_F(Ordering, ManyThreadsAtOnce) {
  const CUdeviceptr numbers = zeros(8 * 4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      OK(cuCtxSetCurrent(context));
      const CUstream s = stream();
      for (int digit = 1; digit <= 9; ++digit) OK(append(s, numbers + 8 * static_cast<unsigned>(i), digit));
      OK(cuStreamSynchronize(s));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(peek<Digits>(numbers + 8 * i), 123456789u);
}

TEST_F(Ordering, AWaitForAValueEndsWhenItIsWritten) {
  const CUdeviceptr flag = zeros(8), number = zeros(8);
  const CUstream a = stream(), b = stream();
  OK(cuStreamWaitValue32(a, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(append(a, number, 2));
  OK(append(b, number, 1));
  OK(cuStreamWriteValue32(b, flag, 5, 0));
  OK(cuStreamSynchronize(a));
  EXPECT_EQ(peek<Digits>(number), 12u);
}

}  // namespace
