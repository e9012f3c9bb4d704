// A step that something comes into the middle of every few times: `midway WHAT STEPS EVERY` prints what the driver
// refused, and a digest of what all steps have computed. WHAT:
//   table    another stream puts other pointers into the table that the rest of the step follows; the host waits for it
//   grid     a launch has a grid that no device takes, and is made anew in another shape
//   null     the program is to end no context, which the driver refuses
//   primary  the program is to end the primary context by a call that is not for it
#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

struct Program {
  CUcontext context = start_driver();
  CUmodule programs = nullptr, tables = nullptr;
  CUfunction mix = nullptr, update = nullptr, fill = nullptr, add = nullptr, sum_tables = nullptr;
  CUstream stream = nullptr, second = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CUdeviceptr x = 0, a = 0, b = 0, c = 0, sum = 0, table = 0;
  unsigned* input = nullptr;
  CUdeviceptr *mine = nullptr, *others = nullptr;
  int count = kCount, refused = 0;

  Program() {
    CHECK(cuModuleLoad(&programs, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleLoad(&tables, image_path("hidden_tables.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix, programs, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update, programs, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuModuleGetFunction(&fill, tables, "_Z4fillILi3EEvPjPKjji"));
    CHECK(cuModuleGetFunction(&add, tables, "_Z3addILi5EEvPjPKji"));
    CHECK(cuModuleGetFunction(&sum_tables, tables, "_Z10sum_tablesILi7EEvPKPKjPjii"));
    for (CUstream* each : {&stream, &second}) CHECK(cuStreamCreate(each, CU_STREAM_NON_BLOCKING));
    for (CUevent* each : {&fork, &join}) CHECK(cuEventCreate(each, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr* each : {&x, &a, &b, &c, &sum}) {
      CHECK(cuMemAlloc(each, kBytes));
      CHECK(cuMemsetD32(*each, 1, kCount));
    }
    CHECK(cuMemAlloc(&table, 2 * sizeof(CUdeviceptr)));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input), kBytes));
    for (CUdeviceptr** each : {&mine, &others})
      CHECK(cuMemAllocHost(reinterpret_cast<void**>(each), 2 * sizeof(CUdeviceptr)));
    mine[0] = others[0] = a;
    mine[1] = b;
    others[1] = c;
    CHECK(cuCtxSynchronize());
  }

  template <class... Arguments>
  CUresult launch_grid(unsigned y, CUstream on, CUfunction function, Arguments... arguments) {
    void* parameters[] = {&arguments...};
    return cuLaunchKernel(function, 4, y, 1, 64, 1, 1, 0, on, parameters, nullptr);
  }
  template <class... Arguments>
  void launch(CUfunction function, Arguments... arguments) {
    CHECK(launch_grid(1, stream, function, arguments...));
  }

  void with_table(bool odd) {
    CHECK(cuMemcpyHtoDAsync(table, mine, 2 * sizeof(CUdeviceptr), stream));
    launch(fill, a, x, 1u, count);
    launch(fill, b, x, 2u, count);
    launch(fill, c, x, 3u, count);
    CHECK(cuStreamSynchronize(stream));
    if (odd) {
      CHECK(cuMemcpyHtoDAsync(table, others, 2 * sizeof(CUdeviceptr), second));
      CHECK(cuStreamSynchronize(second));
    }
    launch(sum_tables, table, sum, 2, count);
    launch(fill, a, x, 4u, count);
    launch(fill, b, x, 5u, count);
    launch(fill, c, x, 6u, count);
    launch(add, x, sum, count);
  }
  void with_grid(bool odd, unsigned salt) {
    launch(mix, x, a, a, count, salt);
    if (launch_grid(odd ? 70000 : 1, stream, mix, x, b, b, count, salt) != CUDA_SUCCESS) {
      ++refused;
      launch(mix, x, b, b, count, salt);
    }
    launch(update, sum, a, count);
    launch(update, sum, b, count);
  }
  void on_two_streams(bool odd, const std::string& what) {
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(second, fork, 0));
    launch(mix, x, a, b, count, 1u);
    CHECK(launch_grid(1, second, mix, x, sum, c, count, 2u));
    launch(update, a, b, count);
    for (int i = 0; i < 6; ++i) CHECK(launch_grid(1, second, update, sum, c, count));
    CHECK(cuEventRecord(join, second));
    CHECK(cuStreamWaitEvent(stream, join, 0));
    launch(update, sum, a, count);
    if (odd && cuCtxDestroy(what == "null" ? nullptr : context) != CUDA_SUCCESS) ++refused;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string what = argv[1];
  const int steps = std::atoi(argv[2]), every = std::atoi(argv[3]);
  Program program;
  std::uint64_t digest = 14695981039346656037u;
  std::vector<unsigned> values(kCount);
  for (int step = 0; step < steps; ++step) {
    const bool odd = every > 0 && step % every == every - 1;
    for (int k = 0; k < kCount; ++k) program.input[k] = static_cast<unsigned>(step * 977 + k * 31);
    CHECK(cuMemcpyHtoDAsync(program.x, program.input, kBytes, program.stream));
    if (what == "table") program.with_table(odd);
    if (what == "grid") program.with_grid(odd, static_cast<unsigned>(step));
    if (what == "null" || what == "primary") program.on_two_streams(odd, what);
    CHECK(cuStreamSynchronize(program.stream));
  }
  for (const CUdeviceptr from : {program.sum, program.a, program.b, program.c}) {
    CHECK(cuMemcpyDtoH(values.data(), from, kBytes));
    for (const unsigned value : values) digest = (digest ^ value) * 1099511628211u;
  }
  std::printf("%d refused, %016llx\n", program.refused, static_cast<unsigned long long>(digest));
}
