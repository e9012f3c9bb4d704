// The exact ranges that ops touch, and the races that follow from them.
#include <algorithm>
#include <string>

#include "fixture.h"

namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

class Tracking : public Simcuda {
 protected:
  Tracking() { tracked = true; }

  // Of the last op of this name.
  static bool last(const std::string& name, Ranges& reads, Ranges& writes) {
    SimcudaAccess access;
    for (std::size_t i = simcuda_access_count(); i-- > 0;) {
      if (simcuda_access(i, &access) != 0 || name != access.name) continue;
      reads.clear();
      writes.clear();
      for (std::size_t k = 0; k < access.read_count; ++k) reads.push_back({access.reads[k].begin, access.reads[k].end});
      for (std::size_t k = 0; k < access.write_count; ++k) {
        writes.push_back({access.writes[k].begin, access.writes[k].end});
      }
      return access.exact != 0;
    }
    return false;
  }
};

TEST_F(Tracking, AKernelsOwnLoadsAndStores) {
  const CUdeviceptr in = zeros(4096), out = zeros(4096);
  OK(launch("add_one", nullptr, 4, 32, out + 8, in, 100));
  OK(cuCtxSynchronize());
  Ranges reads, writes;
  ASSERT_TRUE(last("add_one", reads, writes));
  EXPECT_EQ(reads, (Ranges{{in, in + 400}}));
  EXPECT_EQ(writes, (Ranges{{out + 8, out + 408}}));
}

TEST_F(Tracking, AcrossPages) {
  const CUdeviceptr memory = zeros(64 << 10);
  OK(launch("fill", nullptr, 16, 1024, memory, 1, 16 << 10));
  OK(cuCtxSynchronize());
  Ranges reads, writes;
  ASSERT_TRUE(last("fill", reads, writes));
  EXPECT_TRUE(reads.empty());
  EXPECT_EQ(writes, (Ranges{{memory, memory + (64 << 10)}}));
}

TEST_F(Tracking, BlockCopiesInsideAKernel) {
  struct View {
    char tag;
    CUdeviceptr data;
    short rows, columns;
  } from{0, zeros(256), 2, 8}, to{0, zeros(256), 2, 8};
  OK(launch("_ZN6shapes10copy_blockENS_4ViewES0_", nullptr, 1, 1, to, from));
  OK(cuCtxSynchronize());
  Ranges reads, writes;
  ASSERT_TRUE(last("_ZN6shapes10copy_blockENS_4ViewES0_", reads, writes));
  EXPECT_EQ(reads, (Ranges{{from.data, from.data + 128}}));
  EXPECT_EQ(writes, (Ranges{{to.data, to.data + 128}}));
}

TEST_F(Tracking, GlobalsOfModulesCount) {
  OK(launch("count_up", nullptr, 1, 1));
  OK(cuCtxSynchronize());
  CUdeviceptr counter = 0;
  OK(cuModuleGetGlobal(&counter, nullptr, module, "counter"));
  Ranges reads, writes;
  ASSERT_TRUE(last("count_up", reads, writes));
  EXPECT_EQ(reads, (Ranges{{counter, counter + 4}}));
  EXPECT_EQ(writes, (Ranges{{counter, counter + 4}}));
}

TEST_F(Tracking, CopiesAndSetsHaveTheRangesOfTheApi) {
  const CUdeviceptr memory = zeros(4096);
  OK(cuMemcpyDtoD(memory + 1024, memory, 100));
  OK(cuMemsetD2D8(memory, 64, 1, 16, 3));
  OK(cuCtxSynchronize());
  Ranges reads, writes;
  ASSERT_TRUE(last("cuMemcpyDtoD", reads, writes));
  EXPECT_EQ(reads, (Ranges{{memory, memory + 100}}));
  EXPECT_EQ(writes, (Ranges{{memory + 1024, memory + 1124}}));
  ASSERT_TRUE(last("cuMemsetD2D8", reads, writes));
  EXPECT_EQ(writes, (Ranges{{memory, memory + 16}, {memory + 64, memory + 80}, {memory + 128, memory + 144}}));
}

TEST_F(Tracking, AKernelOffTheEndIsReported) {
  const CUdeviceptr memory = zeros(512);
  OK(launch("fill", nullptr, 1, 129, memory, 1, 129));
  OK(cuCtxSynchronize());
  EXPECT_EQ(simcuda_illegal_access_count(), 1u);
}

TEST_F(Tracking, TwoStreamsRace) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    simcuda_set_seed(seed);
    simcuda_reset_counters();
    const CUdeviceptr memory = zeros(64);
    const CUstream a = stream(), b = stream();
    OK(launch("fill", a, 1, 4, memory, 1, 4));
    OK(launch("add_one", b, 1, 4, memory + 32, memory + 12, 1));
    OK(cuCtxSynchronize());
    ASSERT_EQ(simcuda_race_count(), 1u) << seed;
    SimcudaRace race;
    ASSERT_EQ(simcuda_race(0, &race), 0);
    EXPECT_STREQ(race.first_name, "fill");
    EXPECT_STREQ(race.second_name, "add_one");
    EXPECT_TRUE(race.first_writes);
    EXPECT_FALSE(race.second_writes);
    EXPECT_EQ(race.range.begin, memory + 12);
    EXPECT_EQ(race.range.end, memory + 16);
  }
}

TEST_F(Tracking, ReadsDoNotRace) {
  const CUdeviceptr memory = zeros(64), out = zeros(64);
  const CUstream a = stream(), b = stream();
  OK(launch("add_one", a, 1, 4, out, memory, 4));
  OK(launch("add_one", b, 1, 4, out + 16, memory, 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(simcuda_race_count(), 0u);
}

TEST_F(Tracking, EventsTheHostAndTheLegacyStreamOrder) {
  const CUdeviceptr memory = zeros(64);
  const CUstream a = stream(), b = stream(CU_STREAM_DEFAULT);
  const CUevent e = event();
  OK(launch("fill", a, 1, 4, memory, 1, 4));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(launch("fill", b, 1, 4, memory, 2, 4));
  OK(launch("fill", nullptr, 1, 4, memory, 3, 4));
  OK(cuStreamSynchronize(nullptr));
  OK(launch("fill", a, 1, 4, memory, 4, 4));
  OK(cuEventRecord(e, a));
  while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) {
  }
  OK(launch("fill", b, 1, 4, memory, 5, 4));
  OK(cuMemFree(memory));
  CUdeviceptr again = 0;
  OK(cuMemAlloc(&again, 64));
  OK(launch("fill", a, 1, 4, again, 6, 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(simcuda_race_count(), 0u);
}

TEST_F(Tracking, EdgesOfAGraphOrder) {
  const CUdeviceptr memory = zeros(64);
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUdeviceptr out = memory;
  int value = 1, count = 4;
  void* arguments[] = {&out, &value, &count};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function("fill");
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 4;
  params.kernelParams = arguments;
  CUgraphNode first = nullptr, second = nullptr, third = nullptr;
  OK(cuGraphAddKernelNode(&first, graph, nullptr, 0, &params));
  OK(cuGraphAddKernelNode(&second, graph, &first, 1, &params));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  const CUstream s = stream();
  for (int i = 0; i < 3; ++i) OK(cuGraphLaunch(exec, s));
  OK(cuCtxSynchronize());
  EXPECT_EQ(simcuda_race_count(), 0u);
  OK(cuGraphExecDestroy(exec));

  OK(cuGraphAddKernelNode(&third, graph, &first, 1, &params));
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphLaunch(exec, s));
  OK(cuCtxSynchronize());
  EXPECT_EQ(simcuda_race_count(), 1u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(Tracking, AUseBesideTheReleaseIsARace) {
  const CUstream a = stream(), b = stream();
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, 64, a));
  const CUevent e = event();
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(memory, 0, 64, b));
  OK(cuMemFreeAsync(memory, a));
  cuCtxSynchronize();  // may fail, in the order in which the release runs first
  EXPECT_EQ(simcuda_race_count() + simcuda_illegal_access_count(), 1u);
}

// Two names of one piece of memory.
TEST_F(Tracking, PhysicalMemoryThatIsMappedTwiceIsOne) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t page = 0;
  OK(cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, 3 * page, 0, 0, 0));
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemGenericAllocationHandle one = 0, other = 0;
  OK(cuMemCreate(&one, page, &prop, 0));
  OK(cuMemCreate(&other, page, &prop, 0));
  OK(cuMemMap(range, page, 0, one, 0));
  OK(cuMemMap(range + page, page, 0, one, 0));
  OK(cuMemMap(range + 2 * page, page, 0, other, 0));
  OK(cuMemSetAccess(range, 3 * page, &access, 1));
  CUstream streams[2] = {};
  for (CUstream& each : streams) OK(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
  const auto races = [&](CUdeviceptr first, CUdeviceptr second) {
    const std::size_t before = simcuda_race_count();
    EXPECT_EQ(launch("fill", streams[0], 1, 32, first, 1, 32), CUDA_SUCCESS);
    EXPECT_EQ(launch("fill", streams[1], 1, 32, second, 2, 32), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return simcuda_race_count() - before;
  };
  EXPECT_EQ(races(range + 64, range + page + 64), 1u);
  EXPECT_EQ(races(range + 64, range + page + 1024), 0u);
  EXPECT_EQ(races(range + 64, range + 2 * page + 64), 0u);
  EXPECT_EQ(races(range + page - 64, range + 64), 0u) << "it goes on where other memory is";
  OK(cuMemUnmap(range, 3 * page));
  OK(cuMemAddressFree(range, 3 * page));
  for (const CUmemGenericAllocationHandle each : {one, other}) OK(cuMemRelease(each));
}

}  // namespace
