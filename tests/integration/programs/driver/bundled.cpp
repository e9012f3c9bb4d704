// A program whose step uses memory in the ways that a saved step has to cope with.
//
//   bundled STEPS [WHAT]    prints one line, the digest of all state at the end
//
// A step copies from pageable memory and from pinned memory, allocates and frees with and without a stream, keeps a
// tensor for the next step and frees that of the previous step, waits in the middle, and copies rows and a sum back.
// WHAT is what it does in addition:
//   table     keeps the state's address in memory, and copies it to where a later kernel does not look
//   refill    fills its pinned input twice within the step
//   callback  has the driver call a function
//   graph     launches a graph of its own
//   large     keeps 2 MiB of numbers that no compression would make less of
//   unreached
//             keeps them where no op of a step reaches them
//   unknown   launches a kernel that launches others, but only in its first steps, of which the last is cut short
//   unknown_always
//             launches it in all of them
//   ends      tells kernels where memory ends, some of it the step's own
//   entries   copies a table that leads to memory of the step's own, and reads by it
//   enter     has a kernel fill such a table
//   shared    launches one kernel with much shared memory and then with less, and another one with some
//   pageable  copies from pageable memory to pageable memory
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 512;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr unsigned kFirstSteps = 5;
constexpr std::size_t kRows = 8, kRowBytes = 64, kPitch = 128;

class Program {
 public:
  explicit Program(std::string what) : what_(std::move(what)) {
    start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix_, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    if (what_ == "ends" || what_ == "entries" || what_ == "enter") {
      CHECK(cuModuleLoad(&module, image_path("bundled.simcuda").c_str()));
      CHECK(cuModuleGetFunction(&span_, module, "_Z4spanILi3EEvPjPKjj"));
      CHECK(cuModuleGetFunction(&enter_, module, "_Z5enterILi2EEvPPjS0_S0_"));
      CHECK(cuModuleGetFunction(&gather_, module, "_Z6gatherILi7EEvPKPKjPjii"));
    }
    if (what_ == "shared") {
      CHECK(cuFuncSetAttribute(update_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
      CHECK(cuFuncSetAttribute(mix_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 40 << 10));
    }
    CHECK(cuStreamCreate(&stream_, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other_, CU_STREAM_DEFAULT));
    for (CUevent* event : {&forked_, &joined_}) CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr* buffer : {&state_, &weights_, &input_, &table_}) {
      CHECK(cuMemAlloc(buffer, kBytes));
      CHECK(cuMemsetD32(*buffer, 7, kCount));
    }
    CHECK(cuMemcpyHtoD(table_, &state_, sizeof state_));
    CHECK(cuMemAllocAsync(&kept_, kBytes, stream_));
    CHECK(cuMemsetD32Async(kept_, 3, kCount, stream_));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&pinned_), kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&sum_), kBytes));
    if (what_.starts_with("unknown")) {
      CUmodule calls = nullptr;
      CHECK(cuModuleLoad(&calls, image_path("hidden_calls.simcuda").c_str()));
      CHECK(cuModuleGetFunction(&unknown_, calls, "parent"));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&entries_), 2 * sizeof(CUdeviceptr)));
    if (what_ == "graph") {
      CHECK(cuGraphCreate(&graph_, 0));
      CHECK(cuGraphInstantiate(&exec_, graph_, 0));
    }
    if (what_ == "large" || what_ == "unreached") {
      std::vector<unsigned> numbers(std::size_t{1} << 19);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<unsigned>(i * 2654435761u);
      CUdeviceptr& kept = what_ == "large" ? weights_ : unreached_;
      if (kept != 0) CHECK(cuMemFree(kept));
      CHECK(cuMemAlloc(&kept, numbers.size() * sizeof(unsigned)));
      CHECK(cuMemcpyHtoD(kept, numbers.data(), numbers.size() * sizeof(unsigned)));
    }
    CHECK(cuCtxSynchronize());
  }

  void step(unsigned number) {
    CHECK(cuStreamSynchronize(stream_));
    std::vector<unsigned> pageable(kCount);
    for (int i = 0; i < kCount; ++i) {
      pageable[i] = number * 977 + static_cast<unsigned>(i);
      pinned_[i] = number * 31 ^ static_cast<unsigned>(i * 7);
    }
    CHECK(cuMemcpyHtoDAsync(input_, pageable.data(), kBytes, stream_));
    CUdeviceptr from_pinned = 0, kept = 0, plain = 0;
    CHECK(cuMemAllocAsync(&from_pinned, kBytes, stream_));
    CHECK(cuMemcpyHtoDAsync(from_pinned, pinned_, kBytes, stream_));
    CHECK(cuMemAllocAsync(&kept, kBytes, stream_));
    if (unknown_ && (number < kFirstSteps || what_ == "unknown_always")) launch_unknown();
    mix(stream_, input_, from_pinned, kept, 1);
    mix(stream_, kept_, kept, input_, 2);
    CHECK(cuMemFreeAsync(kept_, stream_));
    kept_ = kept;
    CHECK(cuEventRecord(forked_, stream_));
    CHECK(cuStreamWaitEvent(other_, forked_, 0));
    CUdeviceptr branch = 0;
    CHECK(cuMemAllocAsync(&branch, kBytes, other_));
    mix(other_, kept, weights_, branch, 3);
    update(other_, weights_, branch);
    CHECK(cuMemFreeAsync(branch, other_));
    CHECK(cuEventRecord(joined_, other_));
    update(stream_, state_, input_);
    CHECK(cuStreamWaitEvent(stream_, joined_, 0));
    if (span_) reach(number);
    CHECK(cuMemFreeAsync(from_pinned, stream_));
    CHECK(cuStreamSynchronize(stream_));
    CHECK(cuMemAlloc(&plain, kBytes));
    if (what_ == "refill") {
      std::memset(pinned_, 0x5a, kBytes);
      CHECK(cuMemcpyHtoDAsync(plain, pinned_, kBytes, stream_));
      update(stream_, state_, plain);
    }
    if (!(what_ == "unknown" && number + 1 == kFirstSteps)) mix(stream_, state_, weights_, plain, 4);
    if (what_ == "table") CHECK(cuMemcpyDtoDAsync(table_ + 64, table_, sizeof state_, stream_));
    if (what_ == "shared") {
      update(stream_, state_, plain, 100 << 10);
      update(stream_, state_, plain, 60 << 10);
      mix(stream_, state_, weights_, plain, 5, 40 << 10);
    }
    if (what_ == "pageable")
      CHECK(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(rows_), reinterpret_cast<CUdeviceptr>(pageable.data()),
                          sizeof rows_, stream_));
    if (what_ == "callback")
      CHECK(cuLaunchHostFunc(
          stream_, [](void*) {}, nullptr));
    if (what_ == "graph") CHECK(cuGraphLaunch(exec_, stream_));
    update(stream_, state_, plain);
    CHECK(cuMemcpyDtoHAsync(sum_, state_, kBytes, stream_));
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = plain;
    rows.srcPitch = kPitch;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = rows_;
    rows.dstPitch = 2 * kRowBytes;
    rows.WidthInBytes = kRowBytes;
    rows.Height = kRows;
    CHECK(cuMemcpy2D(&rows));
    CHECK(cuMemFree(plain));
    for (std::size_t row = 0; row < kRows; ++row) note(rows_[row * 2 * kRowBytes / sizeof(unsigned)]);
    note(sum_[number % kCount]);
  }

  std::uint64_t digest() const { return digest_; }

 private:
  // By an end, or by a table.
  void reach(unsigned number) {
    CUdeviceptr own = 0;
    CHECK(cuMemAllocAsync(&own, kBytes, stream_));
    launch(span_, own, own + kBytes, number % 4);
    if (what_ == "ends") {
      launch(span_, input_, input_ + kBytes, 5u);
    } else {
      entries_[0] = own;
      entries_[1] = weights_;
      if (what_ == "entries") CHECK(cuMemcpyHtoDAsync(table_, entries_, 2 * sizeof(CUdeviceptr), stream_));
      if (what_ == "enter") launch(enter_, table_, own, weights_);
      launch(gather_, table_, input_, 2, kCount);
    }
    update(stream_, state_, own);
    update(stream_, state_, input_);
    CHECK(cuMemFreeAsync(own, stream_));
  }
  template <class... Arguments>
  void launch(CUfunction function, Arguments... values) {
    void* arguments[] = {&values...};
    CHECK(cuLaunchKernel(function, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }
  void mix(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt, unsigned shared = 0) {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(mix_, kCount / 64, 1, 1, 64, 1, 1, shared, stream, arguments, nullptr));
  }
  void update(CUstream stream, CUdeviceptr state, CUdeviceptr change, unsigned shared = 0) {
    int count = kCount;
    void* arguments[] = {&state, &change, &count};
    CHECK(cuLaunchKernel(update_, kCount / 64, 1, 1, 64, 1, 1, shared, stream, arguments, nullptr));
  }
  void launch_unknown() {
    int count = kCount;
    void* arguments[] = {&state_, &weights_, &count};
    CHECK(cuLaunchKernel(unknown_, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }
  void note(unsigned value) { digest_ = (digest_ ^ value) * 1099511628211u; }

  const std::string what_;
  CUfunction mix_ = nullptr, update_ = nullptr, unknown_ = nullptr;
  CUfunction span_ = nullptr, enter_ = nullptr, gather_ = nullptr;  // where asked for
  CUstream stream_ = nullptr, other_ = nullptr;
  CUevent forked_ = nullptr, joined_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUdeviceptr state_ = 0, weights_ = 0, input_ = 0, table_ = 0, kept_ = 0, unreached_ = 0;
  unsigned *pinned_ = nullptr, *sum_ = nullptr;
  CUdeviceptr* entries_ = nullptr;
  unsigned rows_[kRows * 2 * kRowBytes / sizeof(unsigned)] = {};
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr,
                 "usage: bundled STEPS [table|refill|callback|graph|large|ends|entries|enter|shared|pageable]\n");
    return 2;
  }
  Program program(argc == 3 ? argv[2] : "");
  const int steps = std::atoi(argv[1]);
  for (int i = 0; i < steps; ++i) program.step(static_cast<unsigned>(i));
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
  return 0;
}
