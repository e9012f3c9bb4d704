// A program whose kernel takes what it reads from a buffer, or by an array of pointers, as a parameter says.
//
//   choosing WHAT STEPS    prints one line, the digest of all state at the end
//
// WHAT: "stride", from a buffer that no other kernel of the step touches; "array", by an array from one that another
// kernel writes; "later", the one and in the second half of the steps the other.
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
    CHECK(cuModuleLoad(&module_, image_path("choosing.simcuda").c_str()));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* buffer : {&x_, &written_, &still_, &sum_}) {
      CHECK(cuMemAlloc(buffer, kBytes));
      CHECK(cuMemsetD32(*buffer, 3, kCount));
    }
    const CUdeviceptr table[2] = {still_, written_};
    CHECK(cuMemAlloc(&table_, sizeof table));
    CHECK(cuMemcpyHtoD(table_, table, sizeof table));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input_), kBytes));
    CHECK(cuCtxSynchronize());
  }

  void run(int steps) {
    for (int number = 0; number < steps; ++number) {
      for (int i = 0; i < kCount; ++i) input_[i] = static_cast<unsigned>(number * 977 + i * 31);
      const bool by_array = what_ == "array" || (what_ == "later" && number >= steps / 2);
      CHECK(cuMemcpyHtoDAsync(x_, input_, kBytes, stream_));
      launch("_Z5movedILi1EEvPjPKji", written_, x_, kCount);
      launch("_Z5takenILi7EEvPjPKjlPKS2_ii", sum_, still_, long{0}, by_array ? table_ : CUdeviceptr{0},
             by_array ? 1 : 0, kCount);
      CHECK(cuStreamSynchronize(stream_));
    }
  }

  std::uint64_t digest() const {
    std::uint64_t digest = 14695981039346656037u;
    std::vector<unsigned> values(kCount);
    for (const CUdeviceptr buffer : {sum_, written_}) {
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

  const std::string what_;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr x_ = 0, written_ = 0, still_ = 0, sum_ = 0, table_ = 0;
  unsigned* input_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  Program program(arguments[1]);
  program.run(std::stoi(arguments[2]));
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
  return 0;
}
