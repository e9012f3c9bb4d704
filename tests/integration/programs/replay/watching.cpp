// A program that observes the GPU in other ways than waiting for it, on several streams.
//
//   watching MODE STEPS    prints one line, the digest of all state at the end
//
// MODE is one of:
//   memory     in the middle of each step the host waits for words in mapped memory, with no call at all: each branch
//              copies there what it has computed, and then sets a word that says so
//   earlier    in the middle of each step the host asks for the events of the step before until they have happened
//   talk       a kernel waits, in memory, for what one on another stream puts there; it is launched after that one
//   late       the same, launched before it: on devices alone, where kernels run at once
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256, kBranches = 3;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Program {
 public:
  Program() {
    start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix_, module, "_Z3mixILi3EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuModuleGetFunction(&post_, module, "_Z4postILi1EEvPjj"));
    CHECK(cuModuleGetFunction(&await_, module, "_Z5awaitILi1EEvPKjjPj"));
    CHECK(cuStreamCreate(&main_, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&forked_, CU_EVENT_DISABLE_TIMING));
    for (CUstream& stream : branches_) CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUevent& event : joined_) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr& state : states_) {
      CHECK(cuMemAlloc(&state, kBytes));
      CHECK(cuMemsetD32(state, 17 + static_cast<unsigned>(&state - states_.data()), kCount));
    }
    CHECK(cuMemAlloc(&mailbox_, sizeof(unsigned)));
    CHECK(cuMemsetD32(mailbox_, 0, 1));
    // The results of a branch, and the word that says that they are there, each in an allocation of its own.
    for (int b = 0; b < kBranches; ++b) {
      CHECK(cuMemAlloc(&computed_[b], kBytes));
      map(kBytes, results_[b], results_on_device_[b]);
      map(sizeof(unsigned), done_[b], done_on_device_[b]);
    }
    CHECK(cuCtxSynchronize());
  }

  bool run(std::string_view mode, unsigned steps) {
    for (unsigned number = 1; number <= steps; ++number) {
      if (mode == "memory") {
        branches(number, [&] { watch_memory(number); });
      } else if (mode == "earlier") {
        branches(number, [&] { watch_events(number); });
      } else if (mode == "talk" || mode == "late") {
        talk(number, mode == "late");
      } else {
        return false;
      }
    }
    return true;
  }

  std::uint64_t digest() {
    CHECK(cuCtxSynchronize());
    unsigned values[kCount];
    for (const CUdeviceptr state : states_) {
      CHECK(cuMemcpyDtoH(values, state, kBytes));
      for (const unsigned value : values) note(value);
    }
    return digest_;
  }

 private:
  void note(unsigned value) { digest_ = (digest_ ^ value) * 1099511628211u; }

  static void map(std::size_t bytes, unsigned*& host, CUdeviceptr& device) {
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&host), bytes, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&device, host, 0));
    std::memset(host, 0, bytes);
  }

  void launch(CUfunction kernel, CUstream stream, void** arguments, unsigned threads = kCount) {
    CHECK(cuLaunchKernel(kernel, threads > 64 ? threads / 64 : 1, 1, 1, threads > 64 ? 64 : threads, 1, 1, 0, stream,
                         arguments, nullptr));
  }
  void mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt, CUstream stream) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    launch(mix_, stream, arguments);
  }
  void update(CUdeviceptr state, CUdeviceptr change, CUstream stream) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    launch(update_, stream, arguments);
  }

  // Branches on streams of their own, which the main stream joins after the host has looked.
  template <class Look>
  void branches(unsigned number, const Look& look) {
    CUdeviceptr input = 0;
    CHECK(cuMemAllocAsync(&input, kBytes, main_));
    CHECK(cuMemsetD32Async(input, number * 977, kCount, main_));
    update(input, states_[kBranches], main_);
    CHECK(cuEventRecord(forked_, main_));
    for (int b = 0; b < kBranches; ++b) {
      CHECK(cuStreamWaitEvent(branches_[b], forked_, 0));
      mix(input, states_[b], computed_[b], 3 + static_cast<unsigned>(b), branches_[b]);
      CHECK(cuMemcpyDtoDAsync(results_on_device_[b], computed_[b], kBytes, branches_[b]));
      CHECK(cuMemsetD32Async(done_on_device_[b], number, 1, branches_[b]));
    }
    look();
    for (int b = 0; b < kBranches; ++b) {
      update(states_[b], computed_[b], branches_[b]);
      CHECK(cuEventRecord(joined_[b], branches_[b]));
      CHECK(cuStreamWaitEvent(main_, joined_[b], 0));
      update(states_[kBranches], states_[b], main_);
    }
    CHECK(cuMemFreeAsync(input, main_));
    CHECK(cuEventRecord(forked_, main_));
    for (CUstream stream : branches_) CHECK(cuStreamWaitEvent(stream, forked_, 0));
  }

  void watch_memory(unsigned number) {
    for (int b = kBranches - 1; b >= 0; --b) {
      while (__atomic_load_n(done_[b], __ATOMIC_ACQUIRE) != number) {
      }
      for (int i = 0; i < kCount; ++i) note(results_[b][i]);
    }
  }

  void watch_events(unsigned number) {
    for (CUevent event : joined_)
      while (number > 1 && cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
      }
  }

  // Nothing but the word orders the two kernels.
  void talk(unsigned number, bool late) {
    mix(states_[0], states_[1], states_[2], number, branches_[0]);
    const auto post = [&] {
      void* arguments[] = {&mailbox_, &number};
      launch(post_, branches_[0], arguments, 1);
    };
    const auto await = [&] {
      void* arguments[] = {&mailbox_, &number, &states_[3]};
      launch(await_, branches_[1], arguments, 1);
      update(states_[3], states_[3], branches_[1]);
    };
    if (late) await();
    post();
    if (!late) await();
    update(states_[0], states_[2], branches_[0]);
    if (number % 4 == 0) CHECK(cuCtxSynchronize());
  }

  CUfunction mix_ = nullptr, update_ = nullptr, post_ = nullptr, await_ = nullptr;
  CUstream main_ = nullptr;
  CUevent forked_ = nullptr;
  std::array<CUstream, kBranches> branches_{};
  std::array<CUevent, kBranches> joined_{};
  std::array<CUdeviceptr, kBranches + 1> states_{};
  CUdeviceptr mailbox_ = 0;
  std::array<unsigned*, kBranches> results_{}, done_{};
  std::array<CUdeviceptr, kBranches> computed_{}, results_on_device_{}, done_on_device_{};
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  Program program;
  if (argc != 3 || !program.run(argv[1], static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)))) {
    std::fprintf(stderr, "usage: watching memory|earlier|talk|late STEPS\n");
    return 2;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
  return 0;
}
