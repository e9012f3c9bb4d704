// A program whose step uses several streams, and which breaks its step at random.
//
//   streams MODE STEPS SEED    prints one line, the digest of all state at the end
//
// MODE is one of:
//   fork       branches on streams of their own, which fork from the first stream and join it again, by events
//   prefetch   inputs come by a stream of their own, a step ahead, into two buffers that take turns
//   threads    two threads, each with a stream of its own, which meet by events; they interleave differently each time
//
// With seed 0 every step is the same: that is what a schedule is made from. With any other seed about every third step
// does something else. What it computes depends on its arguments alone, never on timing.
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr int kBranches = 3;

enum Disturbance : unsigned {
  kNone,
  kSynchronizeBranch,
  kSynchronizeAll,
  kPollBranch,
  kLeaveOut,
  kExtraOnBranch,
  kOutsideOnBranch,
  kOutsideOnMain,
  kNewStream,
  kMoveState,
  kSwapStates,
  kDawdle,
  kReadBranch,
  kLegacyStream,
  kKeepTensor,
  kFreeOnBranch,
  kNewEvent,
  kOtherRecord,
  kCaptureBranch,
  kOtherShape,
  kEndEarly,
  kDisturbances
};

// What one thread hands to another: numbers that only rise.
class Turn {
 public:
  void reach(int number) {
    const std::lock_guard lock(mutex_);
    number_ = number;
    changed_.notify_all();
  }
  void wait_for(int number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return number_ >= number; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int number_ = 0;
};

class Program {
 public:
  explicit Program(unsigned seed) : seed_(seed), random_(seed) {
    context_ = start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix1_, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&mix3_, module, "_Z3mixILi3EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&main_, CU_STREAM_NON_BLOCKING));
    for (CUstream& stream : branches_) CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUevent* event : {&forked_, &other_}) CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    for (auto* events : {&joined_, &loaded_, &used_})
      for (CUevent& event : *events) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr& state : states_) {
      CHECK(cuMemAlloc(&state, kBytes));
      CHECK(cuMemsetD32(state, 17 + static_cast<unsigned>(&state - states_.data()), kCount));
    }
    for (CUdeviceptr& input : inputs_) CHECK(cuMemAlloc(&input, kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&pinned_), 2 * kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    CHECK(cuCtxSynchronize());
  }

  bool run(const char* mode, int steps) {
    if (std::strcmp(mode, "fork") == 0) {
      for (int i = 0; i < steps; ++i) fork(i, draw());
    } else if (std::strcmp(mode, "prefetch") == 0) {
      prefetch(steps);
    } else if (std::strcmp(mode, "threads") == 0) {
      threads(steps);
    } else {
      return false;
    }
    return true;
  }

  std::uint64_t digest() {
    CHECK(cuCtxSynchronize());
    for (const CUdeviceptr kept : kept_) CHECK(cuMemFreeAsync(kept, main_));
    for (const CUdeviceptr state : states_) {
      CHECK(cuMemcpyDtoH(result_, state, kBytes));
      for (int i = 0; i < kCount; ++i) note(result_[i]);
    }
    return digest_;
  }

 private:
  void note(unsigned value) { digest_ = (digest_ ^ value) * 1099511628211u; }

  // About every third step of a disturbed run is disturbed.
  Disturbance draw() {
    const auto drawn = static_cast<unsigned>(random_() % (3 * kDisturbances));
    return seed_ == 0 || drawn >= kDisturbances ? kNone : static_cast<Disturbance>(drawn);
  }

  void mix(CUfunction kernel, CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt, CUstream stream,
           unsigned grid = kCount / 64) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(kernel, grid, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
  void update(CUdeviceptr state, CUdeviceptr change, CUstream stream) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernel(update_, kCount / 64, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
  CUdeviceptr allocate(CUstream stream) {
    CUdeviceptr tensor = 0;
    CHECK(cuMemAllocAsync(&tensor, kBytes, stream));
    return tensor;
  }
  void read_back(CUdeviceptr from, CUstream stream) {
    CHECK(cuMemcpyDtoHAsync(result_, from, kBytes, stream));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < kCount; ++i) note(result_[i]);
  }
  // Orders the second stream after all work on the first.
  void hand_over(CUevent event, CUstream from, CUstream to) {
    CHECK(cuEventRecord(event, from));
    CHECK(cuStreamWaitEvent(to, event, 0));
  }

  // x is made on the main stream; each branch makes two tensors from it on a stream of its own; the main stream joins
  // them.
  void fork(int number, Disturbance what) {
    between_steps(what);
    const CUdeviceptr x = allocate(main_);
    CHECK(cuMemsetD32Async(x, static_cast<unsigned>(number) * 977 + 5, kCount, main_));
    mix(mix1_, states_[3], states_[0], x, static_cast<unsigned>(number), main_);
    std::array<CUdeviceptr, kBranches> out{};
    CHECK(cuEventRecord(forked_, main_));
    if (what == kOtherRecord) hand_over(other_, main_, branches_[1]);
    for (int b = 0; b < kBranches; ++b) {
      CUstream stream = branches_[b];
      CHECK(cuStreamWaitEvent(stream, forked_, 0));
      const CUdeviceptr t = allocate(stream);
      out[b] = allocate(stream);
      mix(mix3_, x, states_[b], t, 11 + static_cast<unsigned>(b), stream, what == kOtherShape ? 7 : kCount / 64);
      if (what == kSynchronizeBranch && b == 1) CHECK(cuStreamSynchronize(stream));
      if (what == kPollBranch && b == 1)
        while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        }
      if (what == kReadBranch && b == 2) read_back(t, stream);
      if (what != kLeaveOut || b != 1) mix(mix1_, t, x, out[b], 3, stream);
      if (what == kLeaveOut && b == 1) CHECK(cuMemcpyDtoDAsync(out[b], t, kBytes, stream));
      if (what == kExtraOnBranch && b == 0) update(out[b], t, stream);
      if (what == kDawdle && b == 1) usleep(4000);
      update(states_[b], out[b], stream);
      CHECK(cuMemFreeAsync(t, stream));
      CHECK(cuEventRecord(joined_[b], stream));
    }
    if (what == kSynchronizeAll) CHECK(cuCtxSynchronize());
    if (what == kLegacyStream) CHECK(cuMemsetD32(inputs_[0], static_cast<unsigned>(number), kCount));
    for (int b = 0; b < kBranches; ++b) {
      CHECK(cuStreamWaitEvent(main_, joined_[b], 0));
      update(states_[3], out[b], main_);
      if (what == kEndEarly && b == 1) break;
    }
    update(states_[4], x, main_);
    for (int b = 0; b < kBranches; ++b) {
      if (what == kKeepTensor && b == 0) {
        kept_.push_back(out[b]);
        continue;
      }
      // A branch's stream may have to wait for work that still uses the tensor.
      CUstream where = what == kFreeOnBranch ? branches_[b] : main_;
      if (what == kFreeOnBranch) hand_over(other_, main_, where);
      if (what == kEndEarly) CHECK(cuStreamSynchronize(branches_[b]));
      CHECK(cuMemFreeAsync(out[b], where));
      if (what == kFreeOnBranch) hand_over(other_, where, main_);
    }
    CHECK(cuMemFreeAsync(x, main_));
    while (what == kNone && !kept_.empty()) {
      CHECK(cuMemFreeAsync(kept_.back(), main_));
      kept_.pop_back();
    }
    // All branches have seen the last of this step before the next one writes what they read.
    CHECK(cuEventRecord(used_[0], main_));
    for (CUstream stream : branches_) CHECK(cuStreamWaitEvent(stream, used_[0], 0));
    if (number % 4 == 3) CHECK(cuStreamSynchronize(main_));
  }

  void between_steps(Disturbance what) {
    switch (what) {
      case kOutsideOnBranch:
        hand_over(other_, main_, branches_[1]);
        update(states_[5], states_[1], branches_[1]);
        update(states_[5], states_[3], branches_[1]);
        hand_over(other_, branches_[1], main_);
        break;
      case kOutsideOnMain:
        update(states_[5], states_[3], main_);
        break;
      case kNewStream:
        CHECK(cuStreamDestroy(branches_[2]));
        CHECK(cuStreamCreate(&branches_[2], CU_STREAM_NON_BLOCKING));
        break;
      case kMoveState: {
        CUdeviceptr moved = 0;
        CHECK(cuMemAlloc(&moved, kBytes));
        CHECK(cuMemcpyDtoDAsync(moved, states_[1], kBytes, main_));
        CHECK(cuCtxSynchronize());
        CHECK(cuMemFree(states_[1]));
        states_[1] = moved;
        break;
      }
      case kSwapStates:
        std::swap(states_[0], states_[2]);
        hand_over(other_, branches_[0], branches_[2]);
        hand_over(other_, branches_[2], branches_[0]);
        break;
      case kNewEvent:
        CHECK(cuEventDestroy(forked_));
        CHECK(cuEventCreate(&forked_, CU_EVENT_DISABLE_TIMING));
        break;
      case kCaptureBranch: {
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        hand_over(other_, main_, branches_[0]);
        CHECK(cuStreamBeginCapture(branches_[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        update(states_[5], states_[3], branches_[0]);
        CHECK(cuStreamEndCapture(branches_[0], &graph));
        CHECK(cuGraphInstantiate(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, branches_[0]));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        hand_over(other_, branches_[0], main_);
        break;
      }
      default:
        break;
    }
  }

  // Into the buffer `number` % 2, as soon as the step before the last one has used what was there. Of two events each:
  // the stream of copies is ahead by one step.
  void load(int number) {
    CUstream copies = branches_[0];
    const int slot = number % 2;
    CHECK(cuEventSynchronize(loaded_[slot]));  // the pinned buffer is free again
    for (int i = 0; i < kCount; ++i) pinned_[slot * kCount + i] = static_cast<unsigned>(number * 977 + i * 31);
    CHECK(cuStreamWaitEvent(copies, used_[slot], 0));
    CHECK(cuMemcpyHtoDAsync(inputs_[slot], pinned_ + slot * kCount, kBytes, copies));
    CHECK(cuEventRecord(loaded_[slot], copies));
  }

  void prefetch(int steps) {
    load(0);
    load(1);
    for (int i = 0; i < steps; i += 2) {
      const Disturbance what = draw();
      between_steps(what);
      for (int slot = 0; slot < 2; ++slot) {
        CHECK(cuStreamWaitEvent(main_, loaded_[slot], 0));
        const CUdeviceptr t = allocate(main_);
        mix(mix3_, inputs_[slot], states_[0], t, 7, main_);
        CHECK(cuEventRecord(used_[slot], main_));
        if (what == kDawdle) usleep(3000);
        if (what == kExtraOnBranch) update(states_[6], states_[4], branches_[0]);
        if (what == kSynchronizeAll) CHECK(cuCtxSynchronize());
        load(i + slot + 2);
        update(states_[0], t, main_);
        if (what != kLeaveOut) mix(mix1_, t, states_[0], states_[1], 13, main_);
        if (what == kSynchronizeBranch) CHECK(cuStreamSynchronize(branches_[0]));
        update(states_[2], states_[1], main_);
        if (what == kReadBranch) read_back(states_[2], main_);
        CHECK(cuMemFreeAsync(t, main_));
      }
    }
  }

  // The first thread makes x and waits for what the second makes of it. Calls between the two meetings come in any
  // order.
  void threads(int steps) {
    std::vector<Disturbance> drawn;
    for (int i = 0; i < steps; ++i) drawn.push_back(draw());
    Turn first, second;
    std::thread other([&] {
      CHECK(cuCtxSetCurrent(context_));
      for (int i = 0; i < steps; ++i) {
        first.wait_for(2 * i + 1);
        CUstream stream = branches_[0];
        CHECK(cuStreamWaitEvent(stream, forked_, 0));
        const CUdeviceptr t = allocate(stream);
        mix(mix3_, inputs_[0], states_[0], t, 11, stream);
        if (drawn[i] == kExtraOnBranch) update(states_[5], t, stream);
        update(states_[0], t, stream);
        if (drawn[i] == kDawdle) usleep(3000);
        if (drawn[i] == kSynchronizeBranch) CHECK(cuStreamSynchronize(stream));
        mix(mix1_, t, states_[0], inputs_[1], 5, stream);
        CHECK(cuMemFreeAsync(t, stream));
        CHECK(cuEventRecord(joined_[0], stream));
        second.reach(2 * i + 1);
      }
    });
    for (int i = 0; i < steps; ++i) {
      CHECK(cuMemsetD32Async(inputs_[0], static_cast<unsigned>(i) * 977 + 5, kCount, main_));
      mix(mix1_, states_[3], states_[1], inputs_[0], static_cast<unsigned>(i), main_);
      CHECK(cuEventRecord(forked_, main_));
      first.reach(2 * i + 1);
      const CUdeviceptr t = allocate(main_);
      mix(mix3_, inputs_[0], states_[1], t, 3, main_);
      if (drawn[i] == kLeaveOut) mix(mix1_, t, states_[1], states_[4], 77, main_);
      update(states_[1], t, main_);
      update(states_[2], states_[1], main_);
      if (drawn[i] == kReadBranch) read_back(states_[2], main_);
      CHECK(cuMemFreeAsync(t, main_));
      second.wait_for(2 * i + 1);
      CHECK(cuStreamWaitEvent(main_, joined_[0], 0));
      update(states_[3], inputs_[1], main_);
      if (drawn[i] == kSynchronizeAll) CHECK(cuCtxSynchronize());
    }
    other.join();
  }

  const unsigned seed_;
  std::mt19937 random_;
  CUcontext context_ = nullptr;
  CUfunction mix1_ = nullptr, mix3_ = nullptr, update_ = nullptr;
  CUstream main_ = nullptr;
  std::array<CUstream, kBranches> branches_{};
  CUevent forked_ = nullptr, other_ = nullptr;
  std::array<CUevent, kBranches> joined_{}, loaded_{}, used_{};
  std::array<CUdeviceptr, 7> states_{};
  std::array<CUdeviceptr, 2> inputs_{};
  std::vector<CUdeviceptr> kept_;
  unsigned* pinned_ = nullptr;
  unsigned* result_ = nullptr;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  const auto usage = [] {
    std::fprintf(stderr, "usage: streams fork|prefetch|threads STEPS SEED\n");
    return 2;
  };
  if (argc != 4) return usage();
  Program program(static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)));
  if (!program.run(argv[1], std::atoi(argv[2]))) return usage();
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
  return 0;
}
