// A program with a kernel that does more than can be believed of it, and one that must come after it:
// `beliefs WHAT HOW STEPS IMAGE [BAD]` prints a digest of what all steps have computed. WHAT:
//   flag      the kernel sets a flag, which the other reads; but only in step BAD
//   clip      it writes to what its signature says that it reads
//   host      the same, and the step copies what it has computed to the host
//   block     it finds its pointers in memory
//   strided   it is given one array, and the distance to another one
//   from_one  it is given an address from before its array
// HOW: `steps` issues each step; `graph` captures one, after some steps to learn from, and launches it; `region` does
// so by nimble_region_begin.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256, kLearned = 3;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Program {
 public:
  Program(const char* image, std::string what) : what_(std::move(what)) {
    start_driver();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuModuleLoad(&module_, image_path(image).c_str()));
    for (CUdeviceptr* const each : {&x_, &y_, &z_, &state_, &beside_}) {
      CHECK(cuMemAlloc(each, kBytes));
      CHECK(cuMemsetD32(*each, 3, kCount));
    }
    CHECK(cuMemAlloc(&flag_, sizeof(unsigned)));
    const unsigned unset = 0;
    CHECK(cuMemcpyHtoD(flag_, &unset, sizeof unset));
    CHECK(cuMemAlloc(&block_, 2 * sizeof(CUdeviceptr)));
    const CUdeviceptr pointers[] = {x_, z_};
    CHECK(cuMemcpyHtoD(block_, pointers, sizeof pointers));
    for (unsigned** const each : {&given_, &result_}) CHECK(cuMemAllocHost(reinterpret_cast<void**>(each), kBytes));
    CHECK(cuCtxSynchronize());
  }

  // The step's input, which comes from the host.
  void give(int step, bool bad) {
    for (int i = 0; i < kCount; ++i) given_[i] = static_cast<unsigned>(step) * 977u + static_cast<unsigned>(i) * 31u;
    if (bad) given_[17] = 0xdeadbeefu;
    CHECK(cuMemcpyHtoDAsync(x_, given_, kBytes, stream));
  }

  void submit() {
    if (what_ == "flag") {
      launch("scale_and_check", x_, y_, flag_);
      launch("apply_unless", flag_, z_, state_);
    } else if (what_ == "clip" || what_ == "host") {
      launch("_Z4clipILi5EEvPKjPji", x_, y_);
      launch(kFollow, state_, x_);
    } else if (what_ == "block") {
      launch("_Z9interpretILi7EEvPKhi", block_);
      launch(kFollow, state_, z_);
    } else if (what_ == "strided") {
      const long stride = (static_cast<long>(z_) - static_cast<long>(y_)) / static_cast<long>(sizeof(unsigned));
      launch("_Z7stridedILi9EEvPjlPKji", y_, stride, x_);
      launch(kFollow, state_, z_);
    } else if (what_ == "from_one") {
      const int rows = static_cast<int>((z_ - y_) / sizeof(unsigned)) - 100;
      launch("_Z8from_oneILi11EEvPjiPKji", z_ - (static_cast<CUdeviceptr>(rows) + 1) * sizeof(unsigned), rows, x_);
      launch(kFollow, state_, z_);
    } else {
      std::exit(2);
    }
    launch(kFollow, beside_, what_ == "flag" ? y_ : x_);
    if (what_ == "host") CHECK(cuMemcpyDtoHAsync(result_, beside_, kBytes, stream));
  }

  void wait() const { CHECK(cuStreamSynchronize(stream)); }

  std::uint64_t digest() const {
    std::uint64_t result = 14695981039346656037u;
    std::vector<unsigned> read(kCount);
    for (const CUdeviceptr each : {state_, beside_, y_, z_}) {
      CHECK(cuMemcpyDtoH(read.data(), each, kBytes));
      for (const unsigned word : read) result = (result ^ word) * 1099511628211u;
    }
    return result;
  }

  CUstream stream = nullptr;

 private:
  static constexpr const char* kFollow = "_Z6followILi1013904223EEvPjPKji";

  template <typename... Arguments>
  void launch(const char* name, Arguments... arguments) {
    CUfunction function = nullptr;
    int count = kCount;
    CHECK(cuModuleGetFunction(&function, module_, name));
    void* parameters[] = {&arguments..., &count};
    CHECK(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
  }

  const std::string what_;
  CUmodule module_ = nullptr;
  CUdeviceptr x_ = 0, y_ = 0, z_ = 0, state_ = 0, beside_ = 0, flag_ = 0, block_ = 0;
  unsigned *given_ = nullptr, *result_ = nullptr;
};

void run_steps(Program& program, int steps, int bad) {
  for (int step = 0; step < steps; ++step) {
    program.give(step, step == bad);
    program.submit();
    program.wait();
  }
}

void run_graph(Program& program, int steps, int bad) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  nimble_learn_begin();
  for (int step = -kLearned; step < 0; ++step) {
    program.give(step, false);
    program.submit();
    program.wait();
  }
  CHECK(cuStreamBeginCapture(program.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  program.submit();
  CHECK(cuStreamEndCapture(program.stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  nimble_learn_end();
  for (int step = 0; step < steps; ++step) {
    program.give(step, step == bad);
    CHECK(cuGraphLaunch(exec, program.stream));
    program.wait();
  }
}

void run_region(Program& program, int steps, int bad) {
  nimble_region* region = nullptr;
  program.give(0, bad == 0);
  const bool records = nimble_region_begin(&region) == NIMBLE_SUCCESS;
  program.submit();
  const bool compiles = records && nimble_region_end(region) == NIMBLE_SUCCESS;
  program.wait();
  if (compiles) nimble_region_compile(region);
  for (int step = 1; step < steps; ++step) {
    program.give(step, step == bad);
    if (!compiles || nimble_region_launch(region, program.stream) != NIMBLE_SUCCESS) program.submit();
    program.wait();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return 2;
  const std::string how = arguments[2];
  const int steps = std::atoi(arguments[3]), bad = count > 5 ? std::atoi(arguments[5]) : -1;
  Program program(arguments[4], arguments[1]);
  if (how == "steps") run_steps(program, steps, bad);
  if (how == "graph") run_graph(program, steps, bad);
  if (how == "region") run_region(program, steps, bad);
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
}
