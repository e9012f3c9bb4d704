// A program with a regular step that it breaks at random: what replay must survive.
//
//   chaos STEPS SEED    prints one line, the digest of all state at the end
//
// With seed 0 every step is the same: that is what a schedule is made from. With any other seed about every third step
// does something else: waits in the middle, leaves ops out, adds some, swaps or moves buffers, keeps memory, frees it
// by other calls, uses other streams, captures, polls. What it computes depends on STEPS and SEED alone, never on
// timing, so its line must be the same with and without Nimble, whatever order the driver runs things in.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr int kSlots = 3;

enum Disturbance : unsigned {
  kNone,
  kSynchronize,
  kLeaveOut,
  kExtraLaunch,
  kReadBack,
  kMoveState,
  kSwapStates,
  kOtherShape,
  kOtherStream,
  kKeepTensor,
  kNewEvent,
  kFreeSynchronously,
  kFreeElsewhere,
  kCapture,
  kLegacyStream,
  kDawdle,
  kAddressRange,
  kPollEvent,
  kOtherSize,
  kEndEarly,
  kDisturbances
};

class Chaos {
 public:
  explicit Chaos(unsigned seed) : seed_(seed), random_(seed) {
    start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix1_, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&mix3_, module, "_Z3mixILi3EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr& state : states_) {
      CHECK(cuMemAlloc(&state, kBytes));
      CHECK(cuMemsetD32(state, 17 + static_cast<unsigned>(&state - states_.data()), kCount));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&pinned_), kBytes * kSlots));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    for (CUevent& event : events_) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step(i);
  }

  std::uint64_t digest() {
    CHECK(cuStreamSynchronize(stream_));
    for (const CUdeviceptr kept : kept_) CHECK(cuMemFreeAsync(kept, stream_));
    for (const CUdeviceptr state : states_) {
      CHECK(cuMemcpyDtoH(result_, state, kBytes));
      for (int i = 0; i < kCount; ++i) note(result_[i]);
    }
    return digest_;
  }

 private:
  void note(unsigned value) { digest_ = (digest_ ^ value) * 1099511628211u; }

  void mix(CUfunction kernel, CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt, int count = kCount) {
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(kernel, grid_, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }

  void update(CUdeviceptr state, CUdeviceptr change, CUstream stream) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernel(update_, grid_, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }

  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr tensor = 0;
    CHECK(cuMemAllocAsync(&tensor, bytes, stream_));
    return tensor;
  }

  void read_back(CUdeviceptr tensor) {
    CHECK(cuMemcpyDtoHAsync(result_, tensor, kBytes, stream_));
    CHECK(cuStreamSynchronize(stream_));
    for (int i = 0; i < kCount; ++i) note(result_[i]);
  }

  void step(int number) {
    // About every third step of a disturbed run is disturbed.
    const auto drawn = static_cast<unsigned>(random_() % (3 * kDisturbances));
    const Disturbance what = seed_ == 0 || drawn >= kDisturbances ? kNone : static_cast<Disturbance>(drawn);
    grid_ = what == kOtherShape ? 7 : kCount / 64;
    between_steps(what);

    // The input, through a ring of pinned slots that is written only after the copy out of it is over.
    const int slot = number % kSlots;
    CHECK(cuEventSynchronize(events_[slot]));
    unsigned* const source = pinned_ + slot * kCount;
    for (int i = 0; i < kCount; ++i) source[i] = static_cast<unsigned>(number * 977 + i * 31);
    const CUdeviceptr x = allocate(kBytes);
    CHECK(cuMemcpyHtoDAsync(x, source, kBytes, stream_));
    CHECK(cuEventRecord(events_[slot], stream_));
    if (what == kPollEvent) {
      while (cuEventQuery(events_[slot]) == CUDA_ERROR_NOT_READY) {
      }
    }

    // Two branches from x through two states, joined in `both`, and a third that joins later.
    const CUdeviceptr a1 = allocate(kBytes), b1 = allocate(kBytes), c1 = allocate(kBytes);
    mix(mix1_, x, states_[0], a1, static_cast<unsigned>(number));
    mix(mix3_, x, states_[1], b1, 5);
    if (what == kSynchronize) CHECK(cuStreamSynchronize(stream_));
    mix(mix1_, x, states_[2], c1, 7);
    const CUdeviceptr a2 = allocate(what == kOtherSize ? kBytes * 2 : kBytes), b2 = allocate(kBytes);
    mix(mix3_, a1, states_[0], a2, 11);
    if (what != kLeaveOut) mix(mix1_, b1, states_[1], b2, 13);
    if (what == kLeaveOut) CHECK(cuMemcpyDtoDAsync(b2, b1, kBytes, stream_));
    if (what == kExtraLaunch) mix(mix1_, b1, a1, b2, 99);
    if (what == kReadBack) read_back(a1);
    if (what == kLegacyStream) CHECK(cuMemsetD32(states_[3], static_cast<unsigned>(number), kCount));
    if (what == kDawdle) usleep(4000);
    if (what == kOtherStream) hand_over(a1);
    if (what == kAddressRange) check_range(a1);
    if (what == kEndEarly) {
      for (const CUdeviceptr tensor : {x, a1, b1, c1, a2, b2}) CHECK(cuMemFreeAsync(tensor, stream_));
      return;
    }
    const CUdeviceptr both = allocate(2 * kBytes);
    CHECK(cuMemcpyDtoDAsync(both, a2, kBytes, stream_));
    CHECK(cuMemcpyDtoDAsync(both + kBytes, b2, kBytes, stream_));
    for (const CUdeviceptr tensor : {a2, b2}) CHECK(cuMemFreeAsync(tensor, stream_));  // `sum` may lie there
    const CUdeviceptr sum = allocate(kBytes);
    CHECK(cuMemsetD32Async(sum, 3, kCount, stream_));
    update(sum, both, stream_);
    update(sum, both + kBytes, stream_);
    update(sum, c1, stream_);
    update(states_[0], sum, stream_);
    update(states_[1], both + kBytes, stream_);
    update(states_[2], c1, stream_);
    update(states_[3], a1, stream_);
    release(what, x, a1);
    for (const CUdeviceptr tensor : {b1, c1, both, sum}) CHECK(cuMemFreeAsync(tensor, stream_));
  }

  // x and a1, freed in one of many ways.
  void release(Disturbance what, CUdeviceptr x, CUdeviceptr a1) {
    if (what == kFreeSynchronously) {
      CHECK(cuStreamSynchronize(stream_));  // which it does not do itself for memory from a pool
      CHECK(cuMemFree(x));
    } else if (what == kFreeElsewhere) {
      make_hand();
      CHECK(cuEventRecord(hand_, stream_));
      CHECK(cuStreamWaitEvent(other_, hand_, 0));
      update(x, a1, other_);  // still in use there: the next step must not have this memory before that is over
      update(x, a1, other_);
      CHECK(cuMemFreeAsync(x, other_));
      CHECK(cuEventRecord(hand_, other_));
      CHECK(cuStreamWaitEvent(stream_, hand_, 0));
    } else {
      CHECK(cuMemFreeAsync(x, stream_));
    }
    if (what == kKeepTensor) {
      kept_.push_back(a1);
      return;
    }
    CHECK(cuMemFreeAsync(a1, stream_));
    while (what == kNone && !kept_.empty()) {
      CHECK(cuMemFreeAsync(kept_.back(), stream_));
      kept_.pop_back();
    }
  }

  void make_hand() {
    if (!hand_) CHECK(cuEventCreate(&hand_, CU_EVENT_DISABLE_TIMING));
  }

  // Work on another stream, between two ops of this one.
  void hand_over(CUdeviceptr tensor) {
    make_hand();
    CHECK(cuEventRecord(hand_, stream_));
    CHECK(cuStreamWaitEvent(other_, hand_, 0));
    update(states_[3], tensor, other_);
    CHECK(cuEventRecord(hand_, other_));
    CHECK(cuStreamWaitEvent(stream_, hand_, 0));
  }

  // An allocation's own base and size, not those of the block that it may have been cut from.
  void check_range(CUdeviceptr tensor) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange(&base, &size, tensor + 8));
    note(base == tensor);
    note(static_cast<unsigned>(size >= kBytes && size < 2 * kBytes));
  }

  void between_steps(Disturbance what) {
    if (what == kMoveState) {
      CUdeviceptr moved = 0;
      CHECK(cuMemAlloc(&moved, kBytes));
      CHECK(cuMemcpyDtoDAsync(moved, states_[1], kBytes, stream_));
      CHECK(cuStreamSynchronize(stream_));
      CHECK(cuMemFree(states_[1]));
      states_[1] = moved;
    }
    if (what == kSwapStates) std::swap(states_[0], states_[2]);
    if (what == kNewEvent) {
      CHECK(cuEventSynchronize(events_[0]));
      CHECK(cuEventDestroy(events_[0]));
      CHECK(cuEventCreate(&events_[0], CU_EVENT_DISABLE_TIMING));
    }
    if (what == kCapture) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      CHECK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      update(states_[3], states_[2], stream_);
      CHECK(cuStreamEndCapture(stream_, &graph));
      CHECK(cuGraphInstantiate(&exec, graph, 0));
      CHECK(cuGraphLaunch(exec, stream_));
      CHECK(cuGraphExecDestroy(exec));
      CHECK(cuGraphDestroy(graph));
    }
  }

  const unsigned seed_;
  std::mt19937 random_;
  CUfunction mix1_ = nullptr, mix3_ = nullptr, update_ = nullptr;
  CUstream stream_ = nullptr, other_ = nullptr;
  std::array<CUdeviceptr, 4> states_{};
  std::array<CUevent, kSlots> events_{};
  CUevent hand_ = nullptr;
  std::vector<CUdeviceptr> kept_;
  unsigned* pinned_ = nullptr;
  unsigned* result_ = nullptr;
  unsigned grid_ = 1;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: chaos STEPS SEED\n");
    return 2;
  }
  Chaos chaos(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
  chaos.run(std::atoi(argv[1]));
  std::printf("%016llx\n", static_cast<unsigned long long>(chaos.digest()));
  return 0;
}
