// A program whose kernels do not tell what they write: what NIMBLE_PROBE=writes is for.
//
//   opaque STEPS regular     a step of independent branches by kernels with plain names, two of whose buffers swap
//                            roles from step to step
//   opaque STEPS large       the same, in which one buffer has 2 MiB
//   opaque STEPS lying       a step with a kernel that writes through a pointer to const
//   opaque STEPS waiting     the stream waits for a value that a later call of the program writes
//   opaque STEPS faulting    work of the stream touches memory that is gone; prints what the driver says of it
//   opaque STEPS threads     the regular step, while another thread allocates, copies, frees and captures
//
// Prints one line: a digest of all state at the end, or the errors.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 2048;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Opaque {
 public:
  explicit Opaque(const std::string& mode) {
    context_ = start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("opaque.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&fill_, module, "fill"));
    CHECK(cuModuleGetFunction(&blend_, module, "blend"));
    CHECK(cuModuleGetFunction(&advance_, module, "advance"));
    CHECK(cuModuleGetFunction(&sly_, module, "_Z3slyILi5EEvPKjPji"));
    CHECK(cuModuleGetFunction(&honest_, module, "_Z6honestILi2EEvPKjPji"));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr& buffer : buffers_) {
      CHECK(cuMemAlloc(&buffer, &buffer == &buffers_[0] && mode == "large" ? std::size_t{2} << 20 : kBytes));
      CHECK(cuMemsetD32(buffer, 3 + static_cast<unsigned>(&buffer - buffers_.data()), kCount));
    }
    CHECK(cuCtxSynchronize());
  }

  void run(int steps, const std::string& mode) {
    std::atomic<bool> over{false};
    std::thread other;
    if (mode == "threads") other = std::thread([&] { make_noise(over); });
    for (int i = 0; i < steps; ++i) {
      if (mode == "waiting" && i == steps / 2) wait_for_later();
      if (mode == "faulting" && i == steps / 2) return fault();
      if (mode == "lying") {
        lying_step(i);
      } else {
        regular_step(i);
      }
      CHECK(cuStreamSynchronize(stream_));
    }
    over = true;
    if (other.joinable()) other.join();
    std::uint64_t digest = 14695981039346656037u;
    std::array<unsigned, kCount> result{};
    for (const CUdeviceptr buffer : buffers_) {
      CHECK(cuMemcpyDtoH(result.data(), buffer, kBytes));
      for (const unsigned value : result) digest = (digest ^ value) * 1099511628211u;
    }
    std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  }

 private:
  template <class... Args>
  CUresult try_launch(CUfunction kernel, Args... args) {
    void* parameters[] = {&args...};
    return cuLaunchKernel(kernel, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, parameters, nullptr);
  }
  template <class... Args>
  void launch(CUfunction kernel, Args... args) {
    CHECK(try_launch(kernel, args...));
  }

  void regular_step(int number) {
    auto& [x, a, b, c, d, e, sum, ping, pong] = buffers_;
    const auto salt = static_cast<unsigned>(number);
    launch(fill_, x, kCount, salt);
    launch(blend_, x, sum, a, kCount, 1u);
    launch(blend_, x, sum, b, kCount, 2u);
    launch(blend_, x, sum, c, kCount, 3u);
    launch(blend_, a, x, d, kCount, 4u);
    launch(blend_, b, x, e, kCount, 5u);
    launch(blend_, ping, x, pong, kCount, 6u);
    launch(advance_, sum, d, kCount);
    launch(advance_, sum, e, kCount);
    launch(advance_, sum, c, kCount);
    launch(advance_, c, pong, kCount);
    std::swap(ping, pong);
  }

  void lying_step(int number) {
    auto& [x, a, b, c, d, e, sum, ping, pong] = buffers_;
    CHECK(cuMemsetD32Async(x, static_cast<unsigned>(number) * 977u + 1, kCount, stream_));
    launch(sly_, x, a, kCount);
    launch(honest_, x, b, kCount);
    launch(sly_, x, c, kCount);
    launch(honest_, x, d, kCount);
    launch(honest_, a, e, kCount);
    launch(honest_, c, sum, kCount);
  }

  // What the stream has been given is done only once the program has said so, after another launch.
  void wait_for_later() {
    CUdeviceptr flag = 0;
    CUstream writer = nullptr;
    CHECK(cuMemAlloc(&flag, 4));
    CHECK(cuMemsetD32(flag, 0, 1));
    CHECK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamWaitValue32(stream_, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    launch(advance_, buffers_[0], buffers_[1], kCount);
    CHECK(cuStreamWriteValue32(writer, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(cuStreamSynchronize(writer));
    CHECK(cuStreamSynchronize(stream_));
    CHECK(cuStreamDestroy(writer));
  }

  // The error comes up wherever the program next asks, and stays.
  void fault() {
    CUdeviceptr gone = 0, more = 0;
    CHECK(cuMemAlloc(&gone, kBytes));
    CHECK(cuMemFree(gone));
    // A driver that refuses this at once has kernels that fault.
    if (cuMemsetD32Async(gone, 1, kCount, stream_) != CUDA_SUCCESS)
      launch(advance_, CUdeviceptr{4096}, buffers_[0], kCount);
    static_cast<void>(try_launch(advance_, buffers_[0], buffers_[1], kCount));  // may tell already, or not yet
    const CUresult first = cuStreamSynchronize(stream_), second = cuMemAlloc(&more, 64),
                   third = try_launch(advance_, buffers_[0], buffers_[1], kCount), last = cuCtxSynchronize();
    std::printf("%d %d %d %d\n", first, second, third, last);
  }

  // Work of a thread that has nothing to do with the step.
  void make_noise(const std::atomic<bool>& over) {
    CHECK(cuCtxSetCurrent(context_));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::array<unsigned, kCount> host{};
    for (unsigned i = 0; !over; ++i) {
      CUdeviceptr p = 0, q = 0;
      CHECK(cuMemAlloc(&p, kBytes));
      CHECK(cuMemAllocAsync(&q, kBytes, stream));
      host.fill(i);
      CHECK(cuMemcpyHtoDAsync(p, host.data(), kBytes, stream));
      CHECK(cuMemcpyDtoDAsync(q, p, kBytes, stream));
      if (i % 4 == 0) {  // in a mode that leaves other threads alone
        CUgraph graph = nullptr;
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(cuMemsetD32Async(p, i, kCount, stream));
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
      }
      CHECK(cuMemFreeAsync(q, stream));
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuMemFree(p));
    }
  }

  CUcontext context_ = nullptr;
  CUfunction fill_ = nullptr, blend_ = nullptr, advance_ = nullptr, sly_ = nullptr, honest_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, 9> buffers_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: opaque STEPS regular|large|lying|waiting|faulting|threads\n");
    return 2;
  }
  Opaque(argv[2]).run(std::atoi(argv[1]), argv[2]);
  return 0;
}
