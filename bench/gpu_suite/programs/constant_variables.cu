// A program of the CUDA runtime whose kernels read a constant variable and exist only as machine code: only the
// variable's address, which the runtime requests from the driver when it writes it, shows what they depend on.
//
// Each step writes the variable twice, and two kernels read it, each the last value. Integers throughout: every written
// bit reaches the output.
#include <cuda_runtime.h>

#include "checked.h"
#include "stepped.h"

constexpr int kBlocks = 64, kThreads = 256, kCount = kBlocks * kThreads, kTable = 1024;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

__constant__ unsigned table[kTable];

__global__ void look_up(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] * 2654435761u + table[(i * 7 + in[i]) % kTable];
}

__global__ void add(const unsigned* a, const unsigned* b, unsigned* state) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  state[i] = (state[i] ^ a[i]) * 2246822519u + b[i];
}

class Program {
 public:
  Program() {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (unsigned** host : {&first_, &second_}) CHECK(cudaMallocHost(host, sizeof table));
    CHECK(cudaMallocHost(&output_, kBytes));
    for (unsigned** memory : {&in_, &a_, &b_, &state_}) {
      CHECK(cudaMalloc(memory, kBytes));
      CHECK(cudaMemset(*memory, 3, kBytes));
    }
    CHECK(cudaDeviceSynchronize());
  }

  void step() {
    CHECK(cudaStreamSynchronize(stream_));  // the tables are read until then
    ++steps_;
    for (unsigned i = 0; i < kTable; ++i) {
      first_[i] = (i + steps_) * 374761393u;
      second_[i] = (i ^ steps_) * 668265263u;
    }
    CHECK(cudaMemcpyToSymbolAsync(table, first_, sizeof table, 0, cudaMemcpyHostToDevice, stream_));
    look_up<<<kBlocks, kThreads, 0, stream_>>>(in_, a_);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyToSymbolAsync(table, second_, sizeof table, 0, cudaMemcpyHostToDevice, stream_));
    look_up<<<kBlocks, kThreads, 0, stream_>>>(in_, b_);
    CHECK(cudaGetLastError());
    add<<<kBlocks, kThreads, 0, stream_>>>(a_, b_, state_);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(output_, state_, kBytes, cudaMemcpyDeviceToHost, stream_));
  }

  void synchronize() { CHECK(cudaStreamSynchronize(stream_)); }

  std::vector<unsigned> output() const { return {output_, output_ + kCount}; }

 private:
  unsigned steps_ = 0;
  cudaStream_t stream_ = nullptr;
  unsigned *first_ = nullptr, *second_ = nullptr, *output_ = nullptr;        // pinned
  unsigned *in_ = nullptr, *a_ = nullptr, *b_ = nullptr, *state_ = nullptr;  // on the device
};

int main() {
  Program program;
  serve([&] { program.step(); }, [&] { program.synchronize(); }, [&] { return program.output(); });
  return 0;
}
