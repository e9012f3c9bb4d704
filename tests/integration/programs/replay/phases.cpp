// A program whose first loop is not its main one: `phases FIRST SECOND`, the steps of each. Memory that the first
// allocates is what the second works on, and some of it is given back and allocated anew in between. With a SECOND
// below zero, so many ops follow of which no sequence repeats. Prints a digest.
#include <cstdint>
#include <random>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

struct Program {
  CUfunction mix = nullptr, update = nullptr;
  CUstream stream = nullptr;
  std::vector<CUdeviceptr> state;
  unsigned grid = 1;

  CUdeviceptr allocate() {
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, kBytes));
    CHECK(cuMemsetD32Async(memory, static_cast<unsigned>(state.size()) + 1, kCount, stream));
    return memory;
  }
  void launch_mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(mix, 1, 1, 1, kCount, 1, 1, 0, stream, arguments, nullptr));
  }
  void launch_update(CUdeviceptr target, CUdeviceptr change) {
    int count = kCount;
    void* arguments[] = {&target, &change, &count};
    CHECK(cuLaunchKernel(update, grid, 1, 1, kCount, 1, 1, 0, stream, arguments, nullptr));
  }
  void first(unsigned salt) {
    launch_mix(state[0], state[1], state[2], salt);
    launch_update(state[0], state[2]);
    launch_update(state[1], state[2]);
    launch_mix(state[1], state[0], state[3], salt);
    launch_update(state[2], state[3]);
  }
  // Launches whose shapes are drawn anew each time.
  void never_the_same(int ops) {
    std::mt19937 random(7);
    for (int i = 0; i < ops; ++i) {
      grid = 1 + random() % 50;
      launch_update(state[random() % 2], state[2 + random() % 2]);
    }
  }
  void second(unsigned salt) {
    CUdeviceptr local = 0;
    CHECK(cuMemAllocAsync(&local, kBytes, stream));
    launch_mix(state[3], state[4], local, salt);
    launch_mix(state[3], state[0], state[5], salt);
    launch_update(state[3], local);
    launch_update(state[4], state[5]);
    CHECK(cuMemFreeAsync(local, stream));
    CHECK(cuStreamSynchronize(stream));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  start_driver();
  Program program;
  CUmodule module = nullptr;
  CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&program.mix, module, "_Z3mixILi1EEvPKjS1_Pjij"));
  CHECK(cuModuleGetFunction(&program.update, module, "_Z6updateILi1EEvPjPKji"));
  CHECK(cuStreamCreate(&program.stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 5; ++i) program.state.push_back(program.allocate());
  for (int i = 0; i < std::atoi(argv[1]); ++i) program.first(static_cast<unsigned>(i));
  CHECK(cuStreamSynchronize(program.stream));
  CHECK(cuMemFree(program.state[1]));
  program.state[1] = program.allocate();
  program.state.push_back(program.allocate());
  program.never_the_same(-std::atoi(argv[2]));
  for (int i = 0; i < std::atoi(argv[2]); ++i) program.second(static_cast<unsigned>(i));
  std::uint64_t digest = 14695981039346656037u;
  std::vector<unsigned> result(kCount);
  for (const CUdeviceptr state : program.state) {
    CHECK(cuMemcpyDtoH(result.data(), state, kBytes));
    for (const unsigned value : result) digest = (digest ^ value) * 1099511628211u;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}
