// A program with a regular step that captures graphs in between, at random: captured ops must not count as work.
//
//   captures STEPS SEED    prints two lines: the digest of all state, and how many ops were executed
//
// With seed 0 nothing is captured, and no other thread works. With any other, captures begin and end on several
// streams, fork to others by events and join again, in all modes, some of them invalidated, some ended by calls that
// fail first, while another thread goes on launching. What is computed depends on STEPS and SEED alone. An op counts as
// executed if its stream does not capture; the graph counts when it is launched.
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256, kStreams = 4;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

class Captures {
 public:
  explicit Captures(unsigned seed) : seed_(seed), random_(seed) {
    context_ = start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    for (Stream& stream : streams_) {
      CHECK(cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING));
      CHECK(cuEventCreate(&stream.event, CU_EVENT_DISABLE_TIMING));
      stream.state = buffer(static_cast<unsigned>(&stream - streams_.data()) + 1);
    }
    fixed_ = buffer(77);
    other_state_ = buffer(5);
    CHECK(cuCtxSynchronize());  // the streams do not wait for what filled the memory
  }

  void run(int steps) {
    // A thread that has nothing to do with all this.
    std::atomic<long> others{0};
    std::thread thread([&] {
      CHECK(cuCtxSetCurrent(context_));
      CUstream stream = nullptr;
      CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      for (int i = 0; seed_ != 0 && i < steps * 3; ++i, ++others) launch(stream, other_state_, fixed_);
    });
    for (int i = 0; i < steps; ++i) {
      if (seed_ != 0) disturb();
      step();
    }
    while (Capture* capture = any_capture()) end(*capture);
    thread.join();
    executed_ += others;
  }

  void report() {
    CHECK(cuCtxSynchronize());
    for (const Stream& stream : streams_) note(stream.state);
    note(other_state_);
    std::printf("%016llx\n%ld\n", static_cast<unsigned long long>(digest_), executed_);
  }

 private:
  struct Stream {
    CUstream handle = nullptr;
    CUevent event = nullptr;
    CUdeviceptr state = 0;
    bool capturing = false;
  };
  struct Capture {
    bool active = false, spoilt = false;
    int origin = 0;
    std::vector<int> forks;
  };

  CUdeviceptr buffer(unsigned value) {
    CUdeviceptr pointer = 0;
    CHECK(cuMemAlloc(&pointer, kBytes));
    CHECK(cuMemsetD32(pointer, value, kCount));
    ++executed_;
    return pointer;
  }
  void launch(CUstream stream, CUdeviceptr state, CUdeviceptr change) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernel(update_, kCount / 64, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
  // An op on one of our streams: executed, unless the stream captures.
  void counted(const Stream& stream) { executed_ += stream.capturing ? 0 : 1; }

  void update(Stream& stream, CUdeviceptr change) {
    launch(stream.handle, stream.state, change);
    counted(stream);
  }
  void record(Stream& stream) {
    CHECK(cuEventRecord(stream.event, stream.handle));
    counted(stream);
  }
  // Stream `waits` comes after what `first` has recorded last; it joins the capture that this belongs to.
  void wait(Stream& waits, const Stream& first) {
    CHECK(cuStreamWaitEvent(waits.handle, first.event, 0));
    waits.capturing = waits.capturing || first.capturing;
    counted(waits);
  }

  // The regular step, on stream 0: executed, or captured where that stream captures.
  void step() {
    Stream& stream = streams_[0];
    CUdeviceptr x = 0, y = 0;
    if (!any_capture()) {
      CHECK(cuStreamSynchronize(stream.handle));  // steps begin where the host has waited
      CHECK(cuMemAllocAsync(&x, kBytes, stream.handle));
      CHECK(cuMemAllocAsync(&y, kBytes, stream.handle));
      executed_ += 2;
    }
    if (x) {
      CHECK(cuMemsetD32Async(x, 3, kCount, stream.handle));
      CHECK(cuMemsetD32Async(y, 4, kCount, stream.handle));
      launch(stream.handle, x, stream.state);
      launch(stream.handle, y, fixed_);
      executed_ += 4;
    }
    update(stream, x ? x : fixed_);
    update(stream, y ? y : fixed_);
    if (x) {
      CHECK(cuMemFreeAsync(x, stream.handle));
      CHECK(cuMemFreeAsync(y, stream.handle));
      executed_ += 2;
    }
  }

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  Capture* any_capture() {
    for (Capture& capture : captures_)
      if (capture.active) return &capture;
    return nullptr;
  }
  int idle_stream() {
    const int first = static_cast<int>(draw(kStreams));
    for (int i = 0; i < kStreams; ++i)
      if (!streams_[static_cast<std::size_t>((first + i) % kStreams)].capturing) return (first + i) % kStreams;
    return -1;
  }
  Stream& at(int i) { return streams_[static_cast<std::size_t>(i)]; }

  void disturb() {
    for (unsigned i = draw(4); i > 0; --i) {
      switch (draw(6)) {
        case 0:
          begin();
          break;
        case 1:
          if (Capture* capture = any_capture()) end(*capture);
          break;
        case 2:
          fork();
          break;
        case 3:
          for (Stream& stream : streams_)
            if (draw(2)) update(stream, fixed_);
          break;
        case 4:
          end_nothing();
          break;
        default:
          if (draw(4) == 0) spoil();
          break;
      }
    }
  }

  void begin() {
    Capture* free_one = nullptr;
    for (Capture& capture : captures_)
      if (!capture.active) free_one = &capture;
    const int stream = idle_stream();
    if (!free_one || stream < 0) return;
    constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                              CU_STREAM_CAPTURE_MODE_RELAXED};
    CHECK(cuStreamBeginCapture(at(stream).handle, kModes[draw(3)]));
    *free_one = {true, false, stream, {}};
    at(stream).capturing = true;
    update(at(stream), fixed_);
  }

  // Another stream joins a capture by waiting for an event of it.
  void fork() {
    Capture* const capture = any_capture();
    const int stream = idle_stream();
    if (!capture || capture->spoilt || stream < 0) return;
    // What it has been given so far is executed; the graph comes after that.
    record(at(capture->origin));
    CHECK(settle(at(stream)));
    wait(at(stream), at(capture->origin));
    capture->forks.push_back(stream);
    update(at(stream), fixed_);
  }
  // The graph will be launched on the origin, which knows nothing of what the joining stream did before.
  CUresult settle(Stream& stream) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    const CUresult result = cuStreamSynchronize(stream.handle);
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    return result;
  }

  // A call that ends no capture, and says so.
  void end_nothing() {
    const int stream = idle_stream();
    CUgraph graph = nullptr;
    if (stream >= 0 && cuStreamEndCapture(at(stream).handle, &graph) == CUDA_SUCCESS) std::exit(3);
  }

  // The host may not wait for a stream that captures: the capture is good for nothing from then on.
  void spoil() {
    Capture* const capture = any_capture();
    if (!capture || capture->spoilt) return;
    if (cuStreamSynchronize(at(capture->origin).handle) == CUDA_SUCCESS) std::exit(3);
    end(*capture, true);
  }

  void end(Capture& capture, bool spoilt = false) {
    Stream& origin = at(capture.origin);
    for (const int fork : capture.forks) {
      if (spoilt) break;
      record(at(fork));
      wait(origin, at(fork));
    }
    CUgraph graph = nullptr;
    const CUresult result = cuStreamEndCapture(origin.handle, &graph);
    if ((result == CUDA_SUCCESS) == spoilt) {
      std::fprintf(stderr, "ending a capture: error %d\n", result);
      std::exit(3);
    }
    origin.capturing = false;
    for (const int fork : capture.forks) at(fork).capturing = false;
    capture.active = false;
    if (spoilt) return;
    CUgraphExec exec = nullptr;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = draw(3); i > 0; --i) {
      CHECK(cuGraphLaunch(exec, origin.handle));
      counted(origin);
    }
    record(origin);
    for (const int fork : capture.forks) wait(at(fork), origin);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
  }

  void note(CUdeviceptr state) {
    CHECK(cuMemcpyDtoH(result_, state, kBytes));
    ++executed_;
    for (int i = 0; i < kCount; ++i) digest_ = (digest_ ^ result_[i]) * 1099511628211u;
  }

  const unsigned seed_;
  std::mt19937 random_;
  CUcontext context_ = nullptr;
  CUfunction update_ = nullptr;
  std::array<Stream, kStreams> streams_{};
  std::array<Capture, 2> captures_{};
  CUdeviceptr fixed_ = 0, other_state_ = 0;
  unsigned* result_ = nullptr;
  long executed_ = 0;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: captures STEPS SEED\n");
    return 2;
  }
  Captures captures(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
  captures.run(std::atoi(argv[1]));
  captures.report();
  return 0;
}
