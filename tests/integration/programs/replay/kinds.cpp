// A program with several kinds of step, which it issues in any order that it is told.
//
//   kinds STEPS [SEED]    prints one line, the digest of all results and of the state at the end
//
// STEPS is a word, a letter for each step:
//   t, e   train, evaluate: they begin with the same forward pass, and diverge after it
//   T, E   the same with a batch of another size
//   c      clean up: shares nothing with the others
//   u, w   two that part with the same op, on other memory of the same size
// and after a letter the digits of a number, for so many of them. `*` takes one of the five letters at random, by the
// seed; `!` is an op that is no step's. What it computes depends on its arguments alone.
#include <cctype>
#include <cstdint>
#include <random>
#include <string>

#include "tests/integration/programs/common/driver.h"

namespace {

class Program {
 public:
  Program() {
    start_driver();
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix1_, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&mix3_, module, "_Z3mixILi3EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    unsigned value = 3;
    for (CUdeviceptr* memory : {&weights_[0], &weights_[1], &moments_, &parted_[0], &parted_[1]}) {
      CHECK(cuMemAlloc(memory, kLarge * sizeof(unsigned)));
      CHECK(cuMemsetD32(*memory, value++, kLarge));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input_), kLarge * sizeof(unsigned)));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&score_), kLarge * sizeof(unsigned)));
    CHECK(cuCtxSynchronize());
  }

  bool step(char letter) {
    switch (letter) {
      case 't':
      case 'T':
        train(letter == 't' ? kSmall : kLarge);
        return true;
      case 'e':
      case 'E':
        evaluate(letter == 'e' ? kSmall : kLarge);
        return true;
      case 'c':
        CHECK(cuMemsetD32Async(moments_, number_, kLarge, stream_));
        launch(update_, kLarge, &weights_[1], &moments_);
        launch(update_, kLarge, &moments_, &weights_[1]);
        ++number_;
        return true;
      case 'u':
      case 'w':
        part(letter == 'u' ? 0 : 1);
        return true;
      case '!':
        CHECK(cuMemsetD32Async(moments_, 5, 1, stream_));
        return true;
      default:
        return false;
    }
  }

  std::uint64_t digest() {
    for (const CUdeviceptr memory : {weights_[0], weights_[1], moments_, parted_[0], parted_[1]}) {
      CHECK(cuMemcpyDtoHAsync(score_, memory, kLarge * sizeof(unsigned), stream_));
      note(kLarge);
    }
    return digest_;
  }

 private:
  static constexpr int kSmall = 256, kLarge = 1024;

  struct Tensors {
    CUdeviceptr x = 0, a = 0, b = 0, y = 0;
  };

  CUdeviceptr tensor(int count) {
    CUdeviceptr memory = 0;
    CHECK(cuMemAllocAsync(&memory, static_cast<std::size_t>(count) * sizeof(unsigned), stream_));
    return memory;
  }

  void launch(CUfunction function, int count, CUdeviceptr* state, CUdeviceptr* change) {
    void* arguments[] = {state, change, &count};
    CHECK(cuLaunchKernel(function, static_cast<unsigned>(count) / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }
  void launch(CUfunction function, int count, CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt) {
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(function, static_cast<unsigned>(count) / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }

  // Two branches, and what joins them. The salt is another one each time.
  Tensors forward(int count) {
    for (int i = 0; i < count; ++i) input_[i] = static_cast<unsigned>(i) * 2654435761u + number_;
    Tensors t;
    t.x = tensor(count);
    CHECK(cuMemcpyHtoDAsync(t.x, input_, static_cast<std::size_t>(count) * sizeof(unsigned), stream_));
    t.a = tensor(count);
    launch(mix1_, count, t.x, weights_[0], t.a, number_);
    t.b = tensor(count);
    launch(mix3_, count, t.x, weights_[1], t.b, number_);
    t.y = tensor(count);
    launch(mix1_, count, t.a, t.b, t.y, 7);
    ++number_;
    return t;
  }

  void release(const Tensors& t) {
    for (const CUdeviceptr memory : {t.y, t.b, t.a, t.x}) CHECK(cuMemFreeAsync(memory, stream_));
  }

  void train(int count) {
    const Tensors t = forward(count);
    CUdeviceptr g = tensor(count), h = tensor(count);
    launch(mix3_, count, t.y, t.a, g, 11);
    launch(mix3_, count, t.y, t.b, h, 13);
    launch(update_, count, &weights_[0], &g);
    launch(update_, count, &weights_[1], &h);
    release(t);
    for (const CUdeviceptr memory : {h, g}) CHECK(cuMemFreeAsync(memory, stream_));
    CHECK(cuStreamSynchronize(stream_));
  }

  void evaluate(int count) {
    const Tensors t = forward(count);
    const CUdeviceptr score = tensor(count);
    launch(mix1_, count, t.y, t.x, score, 17);
    CHECK(cuMemcpyDtoHAsync(score_, score, static_cast<std::size_t>(count) * sizeof(unsigned), stream_));
    CHECK(cuMemFreeAsync(score, stream_));
    release(t);
    note(count);
  }

  void part(int which) {
    CHECK(cuMemsetD32Async(moments_, number_++, kLarge, stream_));
    for (CUdeviceptr& memory : weights_) launch(update_, kLarge, &memory, &moments_);
    launch(update_, kLarge, &parted_[which], &weights_[which]);
    if (which == 0) launch(update_, kLarge, &weights_[1], &parted_[which]);
    if (which == 1) launch(mix1_, kLarge, parted_[which], weights_[0], moments_, 5);
    CHECK(cuStreamSynchronize(stream_));
  }

  // What the copy has brought.
  void note(int count) {
    CHECK(cuStreamSynchronize(stream_));
    for (int i = 0; i < count; ++i) digest_ = (digest_ ^ score_[i]) * 1099511628211u;
  }

  CUfunction mix1_ = nullptr, mix3_ = nullptr, update_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr weights_[2] = {}, moments_ = 0, parted_[2] = {};
  unsigned *input_ = nullptr, *score_ = nullptr;
  unsigned number_ = 0;
  std::uint64_t digest_ = 14695981039346656037u;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: kinds STEPS [SEED]\n");
    return 2;
  }
  const std::string word = argv[1];
  std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::stoul(argv[2])) : 0);
  Program program;
  for (std::size_t i = 0; i < word.size();) {
    const char letter = word[i++];
    std::size_t digits = 0;
    while (i + digits < word.size() && std::isdigit(static_cast<unsigned char>(word[i + digits])) != 0) ++digits;
    const int times = digits == 0 ? 1 : std::stoi(word.substr(i, digits));
    i += digits;
    for (int n = 0; n < times; ++n)
      if (!program.step(letter == '*' ? "teTEc"[random() % 5] : letter)) {
        std::fprintf(stderr, "kinds: no such step: %c\n", letter);
        return 2;
      }
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
}
