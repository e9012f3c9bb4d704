// One rank of a program that trains on two GPUs, with a collective library of its own (collectives.h).
//
//   RANK=0 ranks HOW STEPS FILE &  RANK=1 ranks HOW STEPS FILE
//
// HOW: `memory`, the collectives are given the memory over which they meet; `name`, they find it by themselves;
// `hosts`, as `memory`, and in the middle of each step the first rank's host waits, with no call to the driver, until
// the other rank has seen that its collectives are done. FILE is new and empty; both ranks meet in it. In a step three
// branches go forward and back; their gradients are summed over the ranks, and what one of them put out is gathered, as
// each is ready: these collectives have no memory in common. Then the weights are updated.
//
// Prints a digest of all that the rank has computed. Exit status: 0, 1 for an error of the driver, 3 if the ranks wait
// for each other for ever, 4 if the other rank never came.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/programs/common/driver.h"
#include "tests/integration/programs/kernels/collectives.h"

namespace {

constexpr std::size_t kBytes = kNumbers * sizeof(unsigned);
constexpr std::size_t kPlace = 16384;  // a channel's in the file, in whole pages
static_assert(sizeof(Channel) <= kPlace);
constexpr auto kStartPatience = std::chrono::seconds(120);

// The file: a place for each channel, and one more in which the ranks say that they are there.
class Meeting {
 public:
  explicit Meeting(const char* file) {
    const int descriptor = open(file, O_RDWR | O_CREAT, 0600);
    if (descriptor < 0 || ftruncate(descriptor, kPlace * (kChannels + 1)) != 0) fail();
    for (int i = 0; i <= kChannels; ++i) {
      void* const place =
          mmap(nullptr, kPlace, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(kPlace * i));
      if (place == MAP_FAILED) fail();
      (i < kChannels ? channels_[i] : start_) = static_cast<Channel*>(place);
    }
    close(descriptor);
  }

  Channel* channel(int i) const { return channels_[i]; }

  void wait_for_all(int rank) const {
    __atomic_store_n(&start_->come[rank], 1u, __ATOMIC_SEQ_CST);
    const auto end = std::chrono::steady_clock::now() + kStartPatience;
    while (come(*start_, 1 - rank) == 0) {
      if (std::chrono::steady_clock::now() > end) std::exit(4);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // The other rank's host tells the first's how far it is.
  void tell(unsigned steps) const { __atomic_store_n(&start_->numbers[0][0][0], steps, __ATOMIC_SEQ_CST); }
  void wait_until_told(unsigned steps) const {
    while (__atomic_load_n(&start_->numbers[0][0][0], __ATOMIC_SEQ_CST) < steps && !given_up())
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  // Whether a rank waits at one channel while the other waits at another. A rank waits where it has arrived more often
  // than the other; it cannot arrive at a second channel meanwhile. What we see of one channel holds while that stays
  // so.
  bool deadlocked() const {
    for (int a = 0; a < kChannels; ++a) {
      const unsigned first = come(*channels_[a], 0);
      if (first <= come(*channels_[a], 1)) continue;
      for (int b = 0; b < kChannels; ++b) {
        const bool other_waits = b != a && come(*channels_[b], 1) > come(*channels_[b], 0);
        if (other_waits && come(*channels_[a], 1) < first) return true;
      }
    }
    return false;
  }

  void give_up() const {
    for (Channel* channel : channels_) __atomic_store_n(&channel->stuck, 1u, __ATOMIC_SEQ_CST);
  }
  bool given_up() const {
    for (const Channel* channel : channels_)
      if (__atomic_load_n(&channel->stuck, __ATOMIC_SEQ_CST) != 0) return true;
    return false;
  }

 private:
  static unsigned come(const Channel& channel, int rank) {
    return __atomic_load_n(&channel.come[rank], __ATOMIC_SEQ_CST);
  }
  [[noreturn]] static void fail() {
    std::perror("ranks: the file");
    std::exit(1);
  }

  std::array<Channel*, kChannels> channels_{};
  Channel* start_ = nullptr;
};

class Rank {
 public:
  Rank(const std::string& how, int rank, const Meeting& meeting)
      : by_name_(how == "name"), hosts_meet_(how == "hosts"), rank_(rank), meeting_(meeting) {
    start_driver();
    CUmodule module = nullptr, named = nullptr;
    CHECK(cuModuleLoad(&module, image_path("ranks_kernels.simcuda").c_str()));
    CHECK(cuModuleLoad(&named, image_path("ranks_named.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&layer_, module, "_Z5layerILi7EEvPKjS1_Pji"));
    CHECK(cuModuleGetFunction(&gradient_, module, "_Z8gradientILi11EEvPKjS1_Pji"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi5EEvPjPKji"));
    CHECK(cuModuleGetFunction(&reduce_, by_name_ ? named : module,
                              by_name_ ? "tiny_all_reduce" : "_Z10all_reduceILi2EEvPjS0_ii"));
    CHECK(cuModuleGetFunction(&gather_, by_name_ ? named : module,
                              by_name_ ? "tiny_all_gather" : "_Z10all_gatherILi2EEvPKjPjS2_ii"));
    std::array<CUdeviceptr, kChannels> addresses{};
    for (int i = 0; i < kChannels; ++i) {
      CHECK(cuMemHostRegister(meeting.channel(i), kPlace, CU_MEMHOSTREGISTER_DEVICEMAP));
      CHECK(cuMemHostGetDevicePointer(&addresses[i], meeting.channel(i), 0));
      channels_[i] = addresses[i];
    }
    if (by_name_) {
      CUdeviceptr table = 0;
      std::size_t bytes = 0;
      CHECK(cuModuleGetGlobal(&table, &bytes, named, "tiny_channels"));
      CHECK(cuMemcpyHtoD(table, addresses.data(), sizeof addresses));
    }
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* buffer : {&weights_[0], &weights_[1], &weights_[2], &gathered_}) {
      CHECK(cuMemAlloc(buffer, kRanks * kBytes));
      CHECK(cuMemsetD32(*buffer, 17, kRanks * kNumbers));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input_), kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&seen_), kBytes));
    CHECK(cuCtxSynchronize());
  }

  void step(int number) {
    // Each rank has data of its own.
    for (int i = 0; i < kNumbers; ++i) input_[i] = static_cast<unsigned>((number * 977 + i * 31) * (rank_ + 1));
    const CUdeviceptr x = allocate();
    std::array<CUdeviceptr, 3> out{}, gradients{};
    CHECK(cuMemcpyHtoDAsync(x, input_, kBytes, stream_));
    for (int i = 0; i < 3; ++i) {
      out[i] = allocate();
      launch(layer_, x, weights_[i], out[i], kNumbers);
    }
    for (int i = 0; i < 3; ++i) {
      gradients[i] = allocate();
      launch(gradient_, x, out[i], gradients[i], kNumbers);
      if (i == 1) gather(out[0], gathered_, 3);
      reduce(gradients[i], i);
    }
    if (hosts_meet_ && rank_ == 0) meeting_.wait_until_told(static_cast<unsigned>(number) + 1);
    if (hosts_meet_ && rank_ != 0) {
      CHECK(cuStreamSynchronize(stream_));
      meeting_.tell(static_cast<unsigned>(number) + 1);
    }
    for (int i = 0; i < 3; ++i) launch(update_, weights_[i], gradients[i], kNumbers);
    launch(update_, weights_[2], gathered_, kNumbers);
    CHECK(cuMemcpyDtoHAsync(seen_, gathered_, kBytes, stream_));
    for (int i = 0; i < 3; ++i) {
      CHECK(cuMemFreeAsync(out[i], stream_));
      CHECK(cuMemFreeAsync(gradients[i], stream_));
    }
    CHECK(cuMemFreeAsync(x, stream_));
    CHECK(cuStreamSynchronize(stream_));
    add({seen_, seen_ + kNumbers});
  }

  std::uint64_t digest() {
    std::vector<unsigned> values(kRanks * kNumbers);
    for (const CUdeviceptr buffer : {weights_[0], weights_[1], weights_[2], gathered_}) {
      CHECK(cuMemcpyDtoH(values.data(), buffer, kRanks * kBytes));
      add(values);
    }
    return digest_;
  }

 private:
  CUdeviceptr allocate() {
    CUdeviceptr memory = 0;
    CHECK(cuMemAllocAsync(&memory, kBytes, stream_));
    return memory;
  }

  template <class... Args>
  void launch_on(int threads, CUfunction kernel, Args... args) {
    void* parameters[] = {&args...};
    CHECK(cuLaunchKernel(kernel, static_cast<unsigned>(threads) / 64 + 1, 1, 1, threads == 1 ? 1 : 64, 1, 1, 0, stream_,
                         parameters, nullptr));
  }
  template <class... Args>
  void launch(CUfunction kernel, Args... args) {
    launch_on(kNumbers, kernel, args...);
  }

  void reduce(CUdeviceptr data, int channel) {
    if (by_name_)
      launch_on(1, reduce_, data, channel, rank_, kNumbers);
    else
      launch_on(1, reduce_, data, channels_[channel], rank_, kNumbers);
  }
  void gather(CUdeviceptr own, CUdeviceptr all, int channel) {
    if (by_name_)
      launch_on(1, gather_, own, all, channel, rank_, kNumbers);
    else
      launch_on(1, gather_, own, all, channels_[channel], rank_, kNumbers);
  }

  void add(const std::vector<unsigned>& values) {
    for (const unsigned value : values) digest_ = (digest_ ^ value) * 1099511628211u;
  }

  const bool by_name_, hosts_meet_;
  const int rank_;
  const Meeting& meeting_;
  CUfunction layer_ = nullptr, gradient_ = nullptr, update_ = nullptr, reduce_ = nullptr, gather_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, kChannels> channels_{};
  std::array<CUdeviceptr, 3> weights_{};
  CUdeviceptr gathered_ = 0;
  unsigned *input_ = nullptr, *seen_ = nullptr;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  const char* const rank_text = std::getenv("RANK");
  const std::string how = argc == 4 ? argv[1] : "";
  if ((how != "memory" && how != "name" && how != "hosts") || rank_text == nullptr) {
    std::fprintf(stderr, "usage: RANK=0|1 ranks memory|name|hosts STEPS FILE\n");
    return 2;
  }
  const int rank = std::atoi(rank_text);
  const Meeting meeting(argv[3]);
  Rank program(how, rank, meeting);
  meeting.wait_for_all(rank);
  // Beside the thread that drives the GPU, which hangs where the ranks do.
  std::atomic<bool> over{false};
  std::thread watch([&] {
    while (!over) {
      if (meeting.deadlocked()) meeting.give_up();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (int i = 0; i < std::atoi(argv[2]) && !meeting.given_up(); ++i) program.step(i);
  over = true;
  watch.join();
  if (meeting.given_up()) {
    std::fprintf(stderr, "ranks: deadlock: the ranks came to two channels in different order\n");
    return 3;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
  return 0;
}
