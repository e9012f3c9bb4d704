// onlookers MODE STEPS SEED [KIND]: a program whose steps are looked at from outside. On stream S each step copies its
// input to some data and says so by a flag; all of it is memory of the device's. Its steps are calls, or, but for the
// input, launches of one `graph` of the program's or of one `region` of Nimble's. What another stream T does with that
// memory has no event in between, or sometimes one, and comes in some steps only:
//   poll     the host takes the flag by a copy on T, and where it is set the data by another one
//   sync     the same by copies that the host waits for by themselves
//   kernel   the same, but the data is taken by a kernel on T
//   early    T takes flag and data by two copies which are put there before the step
//   mailbox  T leaves data, and says so by a flag; the step takes the flag, and then the data
//   graph    as poll; the data is taken by a graph that T launches
//   peer     as poll; T is of another context, which is granted access to the memory after some steps
//   ordered  T takes the data after an event of S, and S goes on after one of T
//   host     the host waits for S, takes the data by a copy on T, and waits for that
//   alone    no observer; mailbox_alone: the step looks, and there is no letter
//   apart    T works on memory of its own, in every step and unordered, and waits for nothing
// Prints how often the flag was seen, and how often the data was not what it said. The latter is 0.
#include <cstdint>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr unsigned kInputs = 8;  // that the host may be ahead

class Program {
 public:
  Program(std::string mode, unsigned seed, std::string kind)
      : mode_(std::move(mode)), kind_(std::move(kind)), random_(seed) {
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    for (CUstream* stream : {&s_, &t_}) CHECK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    for (CUevent* event : {&of_s_, &of_t_}) CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr* memory : {&x_, &data_, &flag_, &rest_, &mail_, &mail_flag_, &seen_, &got_, &mine_, &number_}) {
      CHECK(cuMemAlloc(memory, kBytes));
      CHECK(cuMemsetD32(*memory, 0, kCount));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&in_), kInputs * kBytes));
    for (unsigned** memory : {&out_, &word_, &letter_, &letter_flag_})
      CHECK(cuMemAllocHost(reinterpret_cast<void**>(memory), kBytes));
    CHECK(cuCtxSynchronize());
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(t_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemcpyAsync(got_, data_, kBytes, t_));
    CHECK(cuStreamEndCapture(t_, &graph));
    CHECK(cuGraphInstantiate(&take_, graph, 0));
    if (kind_ == "graph") {
      CHECK(cuStreamBeginCapture(s_, CU_STREAM_CAPTURE_MODE_GLOBAL));
      work(0);
      CHECK(cuStreamEndCapture(s_, &graph));
      CHECK(cuGraphInstantiate(&step_, graph, 0));
    }
    if (kind_ == "region" && nimble_region_begin(&region_) == NIMBLE_SUCCESS) {
      work(0);
      if (nimble_region_end(region_) != NIMBLE_SUCCESS || nimble_region_compile(region_) != NIMBLE_SUCCESS)
        std::exit(3);
    }
  }

  void run(unsigned steps) {
    for (unsigned k = 1; k <= steps; ++k) {
      if (mode_ == "peer" && k == steps / 3) let_peer_look();
      if (mode_ == "early" && chance(2)) take_early(k);
      if (mode_ == "mailbox" && chance(2)) leave(k);
      step(k);
      if (mode_ == "apart") work_apart();
      for (unsigned looks = chance(4); looks > 0; --looks) look(k);
      if (mode_ == "ordered" && k % kInputs != 0) continue;
      CHECK(cuStreamSynchronize(s_));
      if (mode_ == "apart" && k % 16 != 0) continue;
      CHECK(cuStreamSynchronize(t_));
      if (early_) check(*word_ == k, out_, k);
      if (mode_ == "mailbox") check_mail(k);
      early_ = false;
    }
    std::printf("seen %ld wrong %ld\n", seen_times_, wrong_);
  }

 private:
  void let_peer_look() {
    CUcontext own = nullptr;
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuCtxCreate(&peer_, nullptr, 0, 0));
    CHECK(cuCtxEnablePeerAccess(own, 0));
    CHECK(cuStreamDestroy(t_));
    CHECK(cuStreamCreate(&t_, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxSetCurrent(own));
  }

  // From 0 to n - 1.
  unsigned chance(unsigned n) {
    random_ = random_ * 1664525u + 1013904223u;
    return (random_ >> 16) % n;
  }
  static unsigned value(unsigned k, int i) { return k * 977u + static_cast<unsigned>(i); }

  // By copies and sets alone: of them everything is known.
  void step(unsigned k) {
    unsigned* const in = in_ + k % kInputs * kCount;
    for (int i = 0; i < kCount; ++i) in[i] = value(k, i);
    CHECK(cuMemcpyHtoDAsync(x_, in, kBytes, s_));
    if (kind_ != "calls") CHECK(cuMemsetD32Async(number_, k, 1, s_));
    if (step_) {
      CHECK(cuGraphLaunch(step_, s_));
    } else if (!region_ || nimble_region_launch(region_, s_) != NIMBLE_SUCCESS) {
      work(k);
    }
  }

  void work(unsigned k) {
    if (mode_.starts_with("mailbox")) {
      CHECK(cuMemcpyAsync(seen_, mail_flag_, sizeof(unsigned), s_));
      CHECK(cuMemcpyAsync(got_, mail_, kBytes, s_));
    }
    CHECK(cuMemcpyAsync(rest_, x_, kBytes, s_));
    CHECK(cuMemcpyAsync(data_, x_, kBytes, s_));
    if (kind_ == "calls") {
      CHECK(cuMemsetD32Async(flag_, k, 1, s_));
    } else {
      CHECK(cuMemcpyAsync(flag_, number_, sizeof(unsigned), s_));
    }
  }

  void take_early(unsigned) {
    early_ = true;
    CHECK(cuMemcpyDtoHAsync(word_, flag_, sizeof(unsigned), t_));
    CHECK(cuMemcpyDtoHAsync(out_, data_, kBytes, t_));
  }

  void leave(unsigned k) {
    for (int i = 0; i < kCount; ++i) letter_[i] = value(k, i);
    *letter_flag_ = k;
    CHECK(cuMemcpyHtoDAsync(mail_, letter_, kBytes, t_));
    CHECK(cuMemcpyHtoDAsync(mail_flag_, letter_flag_, sizeof(unsigned), t_));
  }

  void check_mail(unsigned k) {
    CHECK(cuMemcpyDtoH(word_, seen_, sizeof(unsigned)));
    CHECK(cuMemcpyDtoH(out_, got_, kBytes));
    check(*word_ == k, out_, k);
  }

  void work_apart() {
    CHECK(cuMemsetD32Async(got_, chance(100), kCount, t_));
    void* parameters[] = {&mine_, &got_, &count_};
    CHECK(cuLaunchKernel(update_, 1, 1, 1, kCount, 1, 1, 0, t_, parameters, nullptr));
  }

  void look(unsigned k) {
    if (mode_ == "host") {
      CHECK(cuStreamSynchronize(s_));
      CHECK(cuMemcpyDtoHAsync(out_, data_, kBytes, t_));
      CHECK(cuStreamSynchronize(t_));
      return check(true, out_, k);
    }
    if (mode_ == "ordered") {
      CHECK(cuEventRecord(of_s_, s_));
      CHECK(cuStreamWaitEvent(t_, of_s_, 0));
      CHECK(cuMemcpyDtoHAsync(out_, data_, kBytes, t_));
      CHECK(cuEventRecord(of_t_, t_));
      CHECK(cuStreamWaitEvent(s_, of_t_, 0));
      if (chance(2) == 0) return;
      CHECK(cuStreamSynchronize(t_));
      return check(true, out_, k);
    }
    if (mode_ == "sync") {
      CHECK(cuMemcpyDtoH(word_, flag_, sizeof(unsigned)));
      if (*word_ != k) return;
      CHECK(cuMemcpyDtoH(out_, data_, kBytes));
      return check(true, out_, k);
    }
    if (mode_ == "peer") return look_as_peer(k);
    if (mode_ != "poll" && mode_ != "kernel" && mode_ != "graph") return;
    CHECK(cuMemcpyDtoHAsync(word_, flag_, sizeof(unsigned), t_));
    CHECK(cuStreamSynchronize(t_));
    if (*word_ != k) return;
    if (mode_ == "poll") {
      CHECK(cuMemcpyDtoHAsync(out_, data_, kBytes, t_));
    } else if (mode_ == "graph") {
      CHECK(cuGraphLaunch(take_, t_));
      CHECK(cuMemcpyDtoHAsync(out_, got_, kBytes, t_));
    } else {
      CHECK(cuMemsetD32Async(mine_, 0, kCount, t_));
      void* parameters[] = {&mine_, &data_, &count_};
      CHECK(cuLaunchKernel(update_, 1, 1, 1, kCount, 1, 1, 0, t_, parameters, nullptr));
      CHECK(cuMemcpyDtoHAsync(out_, mine_, kBytes, t_));
    }
    CHECK(cuStreamSynchronize(t_));
    for (int i = 0; mode_ == "kernel" && i < kCount; ++i) out_[i] -= 1013904223u;
    check(true, out_, k);
  }

  void look_as_peer(unsigned k) {
    if (!peer_) return;
    CUcontext own = nullptr;
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuCtxSetCurrent(peer_));
    CHECK(cuMemcpyDtoHAsync(word_, flag_, sizeof(unsigned), t_));
    CHECK(cuStreamSynchronize(t_));
    if (*word_ == k) {
      CHECK(cuMemcpyDtoHAsync(out_, data_, kBytes, t_));
      CHECK(cuStreamSynchronize(t_));
      check(true, out_, k);
    }
    CHECK(cuCtxSetCurrent(own));
  }

  void check(bool seen, const unsigned* data, unsigned k) {
    if (!seen) return;
    ++seen_times_;
    for (int i = 0; i < kCount; ++i)
      if (data[i] != value(k, i)) {
        ++wrong_;
        break;
      }
  }

  const std::string mode_, kind_;
  unsigned random_;
  CUfunction update_ = nullptr;
  CUstream s_ = nullptr, t_ = nullptr;
  CUevent of_s_ = nullptr, of_t_ = nullptr;
  CUdeviceptr x_ = 0, data_ = 0, flag_ = 0, rest_ = 0, mail_ = 0, mail_flag_ = 0, seen_ = 0, got_ = 0, mine_ = 0,
              number_ = 0;
  unsigned *in_ = nullptr, *out_ = nullptr, *word_ = nullptr, *letter_ = nullptr, *letter_flag_ = nullptr;
  CUcontext peer_ = nullptr;
  CUgraphExec take_ = nullptr, step_ = nullptr;
  nimble_region* region_ = nullptr;
  int count_ = kCount;
  bool early_ = false;
  long seen_times_ = 0, wrong_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  start_driver();
  Program program(argv[1], static_cast<unsigned>(std::atoi(argv[3])), argc > 4 ? argv[4] : "calls");
  program.run(static_cast<unsigned>(std::atoi(argv[2])));
  return 0;
}
