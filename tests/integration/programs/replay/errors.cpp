// A program that meets errors, reports them, and goes on: its output is compared with and without replay.
//
//   errors calls [two]   names the calls of a step: ordinal, entry point, and `op` where replay may hold it back
//   errors driver        names the driver functions that replay calls itself (replayer/driver/driver_api.h)
//   errors STEPS [two]   runs the steps, with what is asked for by the environment:
//
//   ERRORS_AT=step:ordinal:CUresult       this call of this step fails: an op wherever it is submitted
//                                         (simcuda_fail_op), any other call as it is made
//   ERRORS_RUN=step:ordinal:CUresult      this op is a fault when it runs
//   ERRORS_INJECT=step:symbol:nth:CUresult   the nth call of the entry point from the beginning of this step fails,
//                                         whoever makes it; more of these, separated by commas
//   ERRORS_PAUSE=step:ordinal:ms          waits so long before this call
//   ERRORS_COUNT=symbol,...               says on stderr how often the entry points are called in each step
//   ERRORS_END=step:ordinal:how[:thread]  instead of this call the context ends: how is destroy, reset, or release;
//                                         with `thread` by another thread. Then the program makes a new one, and runs
//                                         as many steps again. Contexts are created for destroy, else the primary one
//                                         is used
//   ERRORS_ELSEWHERE=step                 this step's first tensor is freed on another stream, which then captures
//
// With `two` a step is on two streams, with events between them, and ERRORS_ELSEWHERE has it submit something to the
// second stream that is not part of a step. What an event orders is not lost to the data where its record or wait
// fails: both streams work on data of their own.
//
// Each error makes one line: step, ordinal, call, CUresult. Each step ends with a line of what it computed, unless the
// context has failed: then nothing is defined any more. The last line of stderr says how many calls and ops failed on
// demand. Everything it prints depends on its arguments alone, but for when work that is held back turns out to fail.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "replayer/driver/driver_api.h"
#include "tests/integration/programs/common/driver.h"
#include "tests/simcuda/simcuda.h"

namespace {

constexpr std::uint32_t kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr std::size_t kTensorBytes = kBytes + 128;
constexpr unsigned kPitch = 64;  // of what has rows
constexpr int kWorstStep = 1 << 20;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

std::string text_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? text : "";
}

struct Place {
  int step = kWorstStep, ordinal = 0;
  std::string what, how;
};

// `step:ordinal:what[:how]`
Place place_of(const char* variable) {
  const std::vector<std::string> words = split(text_of(variable), ':');
  if (words.size() < 3) return {};
  return {std::stoi(words[0]), std::stoi(words[1]), words[2], words.size() > 3 ? words[3] : ""};
}

// Errors after which a context is of no use.
bool is_fault(CUresult result) { return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED; }

// How an op is told from the others of its step; kCall: by its call alone.
constexpr int kCall = -1;

class Program {
 public:
  // Only names the calls.
  bool lists = false;
  bool two_streams = false;

  void run(int steps) {
    const bool both = end_.step != kWorstStep;
    live(steps);
    if (both) {
      std::printf("again\n");
      end_.step = kWorstStep;
      first_ += steps;
      live(steps);
    }
  }

 private:
  const Place at_ = place_of("ERRORS_AT"), run_ = place_of("ERRORS_RUN"), pause_ = place_of("ERRORS_PAUSE");
  Place end_ = place_of("ERRORS_END");
  const std::vector<std::string> inject_ = split(text_of("ERRORS_INJECT"), ',');
  const std::vector<std::string> count_ = split(text_of("ERRORS_COUNT"), ',');
  const std::string elsewhere_ = text_of("ERRORS_ELSEWHERE");

  // One context's life.
  void live(int steps) {
    start();
    for (step_ = first_; step_ < first_ + steps; ++step_) {
      for (const std::string& each : inject_) {
        const std::vector<std::string> words = split(each, ':');
        if (step_ == std::stoi(words[0])) simcuda_inject(words[1].c_str(), std::stoull(words[2]), std::stoi(words[3]));
      }
      std::vector<std::uint64_t> before;
      for (const std::string& symbol : count_) before.push_back(simcuda_calls(symbol.c_str()));
      two_streams ? one_step_of_two() : one_step();
      if (lists) return;
      for (std::size_t i = 0; i < count_.size(); ++i)
        std::fprintf(stderr, "calls %d %s %llu\n", step_, count_[i].c_str(),
                     static_cast<unsigned long long>(simcuda_calls(count_[i].c_str()) - before[i]));
    }
    if (ended_) {
      ended_ = false;
      failed_ = false;
    }
  }

  // One call of the step. `op` and `what` say what it submits, as simcuda_fail_op tells ops.
  template <typename Function>
  CUresult make(const char* symbol, int op, std::uint64_t what, Function function) {
    const int ordinal = ordinal_++;
    if (lists) {
      std::printf("%d %s %s\n", ordinal, symbol, op == kCall ? "call" : "op");
      return CUDA_SUCCESS;
    }
    const auto meant = [&](const Place& place) { return step_ == place.step && ordinal == place.ordinal; };
    if (ended_ && end_.what == "reset")
      return CUDA_SUCCESS;  // a new context is current, and all handles are the old one's
    if (meant(end_)) {
      end_context();
      return CUDA_SUCCESS;
    }
    if (meant(pause_)) usleep(static_cast<unsigned>(std::stoi(pause_.what)) * 1000);
    if (meant(at_)) {
      if (op == kCall) {
        simcuda_inject(symbol, 1, std::stoi(at_.what));
      } else {
        simcuda_fail_op(op, what, std::stoi(at_.what), 0);
      }
    }
    if (meant(run_)) simcuda_fail_op(op, what, std::stoi(run_.what), 1);
    const CUresult result = function();
    if (meant(at_) && op == kCall) simcuda_clear_injections();  // the driver may not have been asked
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
      std::printf("error %d %d %s %d\n", step_, ordinal, symbol, result);
      failed_ = failed_ || is_fault(result);
    }
    return result;
  }

// The exported name of a call, as cuda.h maps it.
#define NAME_(symbol) #symbol
#define NAME(symbol) NAME_(symbol)
#define CALL(function, ...) make(NAME(function), kCall, 0, [&] { return function(__VA_ARGS__); })
#define OP(kind, what, function, ...) \
  make(NAME(function), kind, static_cast<std::uint64_t>(what), [&] { return function(__VA_ARGS__); })

  void end_context() {
    const auto end = [this] {
      CUresult result = CUDA_SUCCESS;
      if (end_.what == "destroy") result = cuCtxDestroy(context_);
      if (end_.what == "reset") result = cuDevicePrimaryCtxReset(0);
      if (end_.what == "release") result = cuDevicePrimaryCtxRelease(0);
      std::printf("ended: %d\n", result);
    };
    if (end_.how == "thread") {
      std::thread(end).join();
    } else {
      end();
    }
    ended_ = failed_ = true;
  }

  void start() {
    CHECK(cuInit(0));
    if (end_.what == "destroy") {
      CHECK(cuCtxCreate(&context_, nullptr, 0, 0));
    } else {
      CHECK(cuDevicePrimaryCtxRetain(&context_, 0));
      CHECK(cuCtxSetCurrent(context_));
    }
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix_, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    if (two_streams) {
      CHECK(cuStreamCreate(&main_, CU_STREAM_NON_BLOCKING));
      CHECK(cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING));
    }
    stream_ = main_;
    for (CUdeviceptr& state : states_) {
      CHECK(cuMemAlloc(&state, kBytes));
      CHECK(cuMemsetD32(state, 17 + static_cast<unsigned>(&state - states_), kCount));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&in_), 2 * kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&out_), kBytes));
    std::memset(out_, 0, kBytes);
    std::memset(plain_, 0, kBytes);
    for (CUevent& event : events_) CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    // A graph of the program's own.
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(other_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD32Async(states_[3], 5, 16, other_));
    CHECK(cuStreamEndCapture(other_, &graph));
    CHECK(cuGraphInstantiate(&exec_, graph, 0));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuCtxSynchronize());
  }

  // Kernels are told from each other by how much they work on: 4-byte words that no other parameter of theirs has.
  void mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, int count) {
    unsigned salt = static_cast<unsigned>(step_) << 16 | 0x8000u;  // new in every step
    void* arguments[] = {&a, &b, &out, &count, &salt};
    OP(SIMCUDA_KERNEL, count, cuLaunchKernel, mix_, 4, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr);
  }
  void update(CUdeviceptr state, CUdeviceptr change, int count) {
    void* arguments[] = {&state, &change, &count};
    OP(SIMCUDA_KERNEL, count, cuLaunchKernel, update_, 4, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr);
  }
  void record(int which) {
    OP(SIMCUDA_EVENT_RECORD, reinterpret_cast<std::uint64_t>(events_[which]), cuEventRecord, events_[which], stream_);
  }
  void wait(int which) {
    OP(SIMCUDA_EVENT_WAIT, reinterpret_cast<std::uint64_t>(events_[which]), cuStreamWaitEvent, stream_, events_[which],
       0);
  }
  CUdeviceptr allocate() {
    CUdeviceptr tensor = 0;
    const CUresult result = CALL(cuMemAllocAsync, &tensor, kTensorBytes, stream_);
    return result == CUDA_SUCCESS ? tensor : 0;
  }

  static void CUDA_CB host_function(void* data) { *static_cast<unsigned*>(data) += 1; }

  void one_step() {
    ordinal_ = 0;
    // The source lies elsewhere each time, as in a ring of buffers.
    unsigned* const in = in_ + step_ % 2 * kCount;
    for (std::uint32_t i = 0; i < kCount; ++i) in[i] = static_cast<unsigned>(step_) * 977 + i * 31;
    // What does not come this time is not last time's.
    std::memset(out_, step_ & 0xff, kBytes);

    const CUdeviceptr x = allocate();
    const CUdeviceptr a = allocate(), b = allocate();
    // Without a tensor there is nothing to do; where the context has failed, all else must fail as well.
    if (!lists && !failed_ && !(x && a && b)) return end_early({x, a, b});
    // Twice: what is left of an earlier step must not show where one of these fails.
    std::size_t bytes = kTensorBytes;
    for (int i = 0; i < 2; ++i) {
      for (const CUdeviceptr tensor : {x, a, b}) {
        OP(SIMCUDA_SET, bytes, cuMemsetD8Async, tensor, 0, bytes, stream_);
        --bytes;
      }
    }
    OP(SIMCUDA_COPY, kBytes, cuMemcpyHtoDAsync, x, in, kBytes, stream_);
    record(0);
    mix(x, states_[0], a, 255);
    OP(SIMCUDA_SET, 1020, cuMemsetD32Async, b, static_cast<unsigned>(step_), 255, stream_);
    update(states_[0], a, 254);
    OP(SIMCUDA_COPY, 1016, cuMemcpyDtoDAsync, b, a, 1016, stream_);
    OP(SIMCUDA_SET, 6, cuMemsetD16Async, b, 7, 3, stream_);
    OP(SIMCUDA_SET, 5, cuMemsetD8Async, b + 8, 9, 5, stream_);
    update(states_[1], b, 253);
    wait(0);
    mix(a, b, x, 252);
    OP(SIMCUDA_SET, 12, cuMemsetD2D8Async, x, kPitch, 1, 4, 3, stream_);
    OP(SIMCUDA_SET, 24, cuMemsetD2D16Async, x + 4, kPitch, 2, 4, 3, stream_);
    OP(SIMCUDA_SET, 32, cuMemsetD2D32Async, x + 12, kPitch, 3, 4, 2, stream_);
    OP(SIMCUDA_COPY, 40, cuMemcpyAsync, states_[2], x, 40, stream_);
    const CUDA_MEMCPY2D rows = copy_of_rows(a, b);
    OP(SIMCUDA_COPY, 8 * 3, cuMemcpy2DAsync, &rows, stream_);
    update(states_[2], b, 251);
    record(1);
    CALL(cuLaunchHostFunc, stream_, host_function, &ran_);
    update(states_[0], states_[1], 250);
    mix(states_[0], a, b, 249);
    CALL(cuGraphLaunch, exec_, stream_);
    update(states_[1], states_[3], 248);
    OP(SIMCUDA_COPY, 992, cuMemcpyDtoHAsync, out_, b, 992, stream_);
    CALL(cuEventQuery, events_[0]);
    mix(b, states_[2], x, 247);
    update(states_[2], x, 246);
    CALL(cuStreamQuery, stream_);
    update(states_[0], x, 245);
    update(states_[1], x, 244);
    CALL(cuMemcpyDtoH, plain_, states_[2], 64);
    update(states_[2], x, 243);
    record(2);
    neutral_calls(a);
    update(states_[0], b, 242);
    CALL(cuEventSynchronize, events_[1]);
    mix(x, states_[1], a, 241);
    CALL(cuMemsetD32, states_[3], 11, 32);
    CALL(cuMemcpyHtoD, states_[3], in, 128);
    update(states_[2], a, 240);
    CALL(cuStreamSynchronize, stream_);
    update(states_[1], a, 239);
    mix(states_[1], a, b, 238);
    OP(SIMCUDA_COPY, 952, cuMemcpyDtoHAsync, out_, b, 952, stream_);
    free_first(x);
    CALL(cuMemFreeAsync, a, stream_);
    CALL(cuMemFreeAsync, b, stream_);
    float ms = 0;
    CALL(cuEventElapsedTime, &ms, events_[0], events_[2]);
    CALL(cuCtxSynchronize);
    say_digest();
  }

  // The first stream has the first state and x, the second one the second state and a.
  void one_step_of_two() {
    ordinal_ = 0;
    stream_ = main_;
    unsigned* const in = in_ + step_ % 2 * kCount;
    for (std::uint32_t i = 0; i < kCount; ++i) in[i] = static_cast<unsigned>(step_) * 977 + i * 31;
    std::memset(out_, step_ & 0xff, kBytes);

    const CUdeviceptr x = allocate();
    stream_ = side_;
    const CUdeviceptr a = allocate();
    if (!lists && !failed_ && !(x && a)) return end_early({x, a});
    OP(SIMCUDA_SET, kTensorBytes, cuMemsetD8Async, a, 0, kTensorBytes, stream_);
    stream_ = main_;
    OP(SIMCUDA_SET, kTensorBytes - 1, cuMemsetD8Async, x, 0, kTensorBytes - 1, stream_);
    OP(SIMCUDA_COPY, kBytes, cuMemcpyHtoDAsync, x, in, kBytes, stream_);
    record(0);
    update(states_[0], x, 255);
    stream_ = side_;
    wait(0);
    OP(SIMCUDA_SET, 1020, cuMemsetD32Async, a, static_cast<unsigned>(step_), 255, stream_);
    update(states_[1], a, 254);
    record(1);
    stream_ = main_;
    update(states_[0], x, 253);
    wait(1);
    update(states_[0], x, 252);
    CALL(cuEventQuery, events_[1]);
    stream_ = side_;
    update(states_[1], a, 251);
    CALL(cuStreamQuery, stream_);
    update(states_[1], a, 250);
    CALL(cuStreamSynchronize, stream_);
    stream_ = main_;
    update(states_[0], x, 249);
    record(2);
    stream_ = side_;
    update(states_[1], a, 248);
    wait(2);
    update(states_[1], a, 247);
    CALL(cuMemFreeAsync, a, stream_);
    record(3);
    stream_ = main_;
    update(states_[0], x, 246);
    wait(3);
    CALL(cuLaunchHostFunc, stream_, host_function, &ran_);
    OP(SIMCUDA_COPY, 952, cuMemcpyDtoHAsync, out_, x, 952, stream_);
    CALL(cuMemFreeAsync, x, stream_);
    if (std::to_string(step_) == elsewhere_ && !lists) {
      CALL(cuLaunchHostFunc, side_, host_function, &ran_on_side_);
      CALL(cuMemsetD32Async, states_[2], 3, 7, side_);
    }
    CALL(cuCtxSynchronize);
    CALL(cuCtxSynchronize);  // one of them may fail, and no other wait is for both streams
    say_digest();
  }

  void end_early(std::initializer_list<CUdeviceptr> tensors) {
    for (const CUdeviceptr tensor : tensors) {
      if (tensor) CALL(cuMemFreeAsync, tensor, stream_);
    }
    CALL(cuCtxSynchronize);
    say_digest();
  }

  // What has nothing to do with work in flight, or makes and ends things in the middle of a step.
  void neutral_calls(CUdeviceptr a) {
    CUdeviceptr base = 0, extra = 0;
    std::size_t size = 0;
    unsigned type = 0;
    CUevent event = nullptr;
    CALL(cuMemGetAddressRange, &base, &size, a + 8);
    CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, states_[0]);
    CALL(cuMemAlloc, &extra, 1 << 16);
    update(states_[1], states_[2], 237);
    CALL(cuMemFree, extra);
    update(states_[1], states_[0], 236);
    CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    CALL(cuEventDestroy, event);
    update(states_[2], states_[0], 235);
  }

  void free_first(CUdeviceptr x) {
    if (std::to_string(step_) == elsewhere_ && !lists) {
      CALL(cuEventRecord, events_[3], stream_);
      CALL(cuStreamWaitEvent, other_, events_[3], 0);
      CALL(cuMemFreeAsync, x, other_);
      CUgraph graph = nullptr;
      CALL(cuStreamBeginCapture, other_, CU_STREAM_CAPTURE_MODE_RELAXED);
      CALL(cuMemsetD32Async, states_[3], 6, 16, other_);
      CALL(cuStreamEndCapture, other_, &graph);
      if (graph) CALL(cuGraphDestroy, graph);
    } else {
      CALL(cuMemFreeAsync, x, stream_);
    }
  }

  static CUDA_MEMCPY2D copy_of_rows(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = from;
    rows.dstDevice = to;
    rows.srcPitch = rows.dstPitch = kPitch;
    rows.WidthInBytes = 8;
    rows.Height = 3;
    return rows;
  }

  void say_digest() {
    std::uint64_t digest = 14695981039346656037u;
    const auto note = [&](const unsigned* words, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) digest = (digest ^ words[i]) * 1099511628211u;
    };
    note(out_, kCount);
    note(plain_, kCount);
    note(&ran_, 1);
    for (unsigned(&state)[kCount] : copies_) {
      CALL(cuMemcpyDtoH, state, states_[&state - copies_], kBytes);
      note(state, kCount);
    }
    if (!lists && !failed_) std::printf("step %d: %016llx\n", step_, static_cast<unsigned long long>(digest));
  }

  CUcontext context_ = nullptr;
  CUfunction mix_ = nullptr, update_ = nullptr;
  // With one stream the legacy default stream, since calls that wait are ops of the step as well, and have no other.
  CUstream main_ = nullptr, side_ = nullptr;
  CUstream stream_ = nullptr;  // that ops go to
  CUstream other_ = nullptr;
  CUdeviceptr states_[4] = {};
  CUevent events_[4] = {};
  CUgraphExec exec_ = nullptr;
  unsigned *in_ = nullptr, *out_ = nullptr;
  unsigned plain_[kCount] = {}, copies_[4][kCount] = {};
  unsigned ran_ = 0, ran_on_side_ = 0;
  int first_ = 0, step_ = 0, ordinal_ = 0;
  bool failed_ = false;  // the context is of no use any more
  bool ended_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && !(argc == 3 && std::string(argv[2]) == "two")) {
    std::fprintf(stderr, "usage: errors STEPS|calls|driver [two]\n");
    return 2;
  }
  if (std::string(argv[1]) == "driver") {
#define X(function) std::puts(NAME(function));
    NIMBLE_REPLAY_FUNCTIONS(X)
    NIMBLE_AUDIT_FUNCTIONS(X)
#undef X
    std::puts("cuEventElapsedTime");  // by this name, whatever cuda.h makes of it
    return 0;
  }
  Program program;
  program.two_streams = argc == 3;
  program.lists = std::string(argv[1]) == "calls";
  program.run(program.lists ? 1 : std::atoi(argv[1]));
  std::fflush(stdout);
  std::fprintf(stderr, "failures: %llu\n", static_cast<unsigned long long>(simcuda_failures()));
  return 0;
}
