// A program whose kernels get from one allocation into another, by numbers that they are given.
//
//   leaving WHAT STEPS [graph]    prints one line, the digest of all state at the end
//
// WHAT: "stride" and "back", from a buffer to the one after or before it; "counted", an array that is counted from one,
// so that its pointer points elsewhere; "apart", by the difference of two pointers; "later", by a stride that leads to
// another buffer in the second half of the steps only. With `graph` each step is a graph that is launched.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Program {
 public:
  explicit Program(const std::string& what) : what_(what) {
    start_driver();
    CHECK(cuModuleLoad(&module_, image_path("leaving.simcuda").c_str()));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* buffer : {&x_, &y_, &z_, &sum_, &other_}) {
      CHECK(cuMemAlloc(buffer, buffer == &y_ || buffer == &z_ ? 2 * kBytes : kBytes));
      CHECK(cuMemsetD32(*buffer, 3, kCount));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input_), kBytes));
    CHECK(cuCtxSynchronize());
  }

  void run(int steps, bool as_graph) {
    CUgraphExec graph = nullptr;
    for (int number = 0; number < steps; ++number) {
      const bool is_late = number >= steps / 2;
      for (int i = 0; i < kCount; ++i) input_[i] = static_cast<unsigned>(number * 977 + i * 31);
      if (!as_graph) {
        step(is_late);
      } else {
        if (graph == nullptr) graph = captured(is_late);
        CHECK(cuGraphLaunch(graph, stream_));
      }
      CHECK(cuStreamSynchronize(stream_));
    }
  }

  std::uint64_t digest() const {
    std::uint64_t digest = 14695981039346656037u;
    std::vector<unsigned> values(kCount);
    for (const CUdeviceptr buffer : {sum_, other_, y_, z_}) {
      CHECK(cuMemcpyDtoH(values.data(), buffer, kBytes));
      for (const unsigned value : values) digest = (digest ^ value) * 1099511628211u;
    }
    return digest;
  }

 private:
  template <class... Args>
  void launch(const char* name, Args... args) {
    CUfunction kernel = nullptr;
    CHECK(cuModuleGetFunction(&kernel, module_, name));
    void* arguments[] = {&args...};
    CHECK(cuLaunchKernel(kernel, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }

  CUgraphExec captured(bool is_late) {
    CUgraph graph = nullptr;
    CUgraphExec result = nullptr;
    CHECK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    step(is_late);
    CHECK(cuStreamEndCapture(stream_, &graph));
    CHECK(cuGraphInstantiate(&result, graph, 0));
    return result;
  }

  void step(bool is_late) {
    const auto apart = [](CUdeviceptr from, CUdeviceptr to) {
      return static_cast<long>(to - from) / static_cast<long>(sizeof(unsigned));
    };
    CHECK(cuMemcpyHtoDAsync(x_, input_, kBytes, stream_));
    if (what_ == "stride" || what_ == "later") {
      const long stride = what_ == "stride" || is_late ? apart(y_, z_) : long{kCount};
      launch("_Z7stridedILi9EEvPjlPKji", y_, stride, x_, kCount);
    } else if (what_ == "back") {
      launch("_Z7stridedILi9EEvPjlPKji", z_, apart(z_, y_), x_, kCount);
    } else if (what_ == "counted") {
      const int row = static_cast<int>(apart(y_, z_)) - 100;
      launch("_Z7countedILi11EEvPjiPKji", z_ - sizeof(unsigned) * (row + 1), row, x_, kCount);
    } else if (what_ == "apart") {
      launch("_Z5apartILi13EEvPjPKjS2_i", y_, z_, x_, kCount);
    } else {
      std::fprintf(stderr, "leaving: no such mode: %s\n", what_.c_str());
      std::exit(2);
    }
    launch("_Z7advanceILi1EEvPjPKji", sum_, what_ == "back" ? y_ : z_, kCount);
    launch("_Z7advanceILi1EEvPjPKji", other_, x_, kCount);
  }

  const std::string what_;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr x_ = 0, y_ = 0, z_ = 0, sum_ = 0, other_ = 0;
  unsigned* input_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  Program program(arguments[1]);
  program.run(std::stoi(arguments[2]), count > 3);
  std::printf("%016lx\n", static_cast<unsigned long>(program.digest()));
  return 0;
}
