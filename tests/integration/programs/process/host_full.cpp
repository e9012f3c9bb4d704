// A program that goes on where the host's memory is all taken: `host_full STEPS KIB`; with one more word, `region`, all
// of it is a region (nimble.h) that is never launched.
//
// After a few steps it limits its address space to what it has, and takes what malloc still gives, but for so many KiB;
// it takes none if that is less than 0. It needs little itself, and tells which driver calls fail and what it has
// computed.
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"

namespace {

long virtual_bytes() {
  long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (!file || std::fscanf(file, "%ld", &pages) != 1) std::exit(3);
  std::fclose(file);
  return pages * 4096;
}

void limit(rlim_t bytes) {
  const rlimit most{bytes, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &most) != 0) std::exit(3);
}

class Taken {
 public:
  // All but `left` bytes.
  void take(std::size_t left) {
    void* kept[64] = {};
    const std::size_t pieces = left / (16 << 10);
    for (std::size_t i = 0; i < pieces; ++i) kept[i] = std::malloc(16 << 10);
    limit(std::size_t{1} << 40);  // what is only reserved for us goes back
    limit(static_cast<rlim_t>(virtual_bytes()));
    for (std::size_t bytes = std::size_t{1} << 20; bytes >= 32; bytes /= 2)
      while (void* const piece = std::malloc(bytes - 8)) first_ = new (piece) Piece{first_};
    for (std::size_t i = 0; i < pieces; ++i) std::free(kept[i]);
  }
  void give_back() {
    while (first_) std::free(std::exchange(first_, first_->next));
  }

 private:
  struct Piece {
    Piece* next;
  };
  Piece* first_ = nullptr;
};

struct Program : GraphProgram {
  int failed[1000] = {};

  void told(CUresult result) { ++failed[result]; }
  void launch(CUfunction function, CUdeviceptr a, CUdeviceptr b, CUdeviceptr to, unsigned salt) {
    int count = kCount;
    void* mixes[] = {&a, &b, &to, &count, &salt};
    void* updates[] = {&to, &a, &count};
    told(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, function == mix ? mixes : updates, nullptr));
  }
  void step(unsigned number) {
    CUdeviceptr between = 0;
    told(cuMemAllocAsync(&between, kBytes, stream));
    told(cuMemsetD32Async(input, number, kCount, stream));
    launch(mix, input, other, between, number);
    launch(update, between, 0, out[0], 0);
    told(cuMemcpyDtoDAsync(out[1], out[0], kBytes, stream));
    told(cuMemFreeAsync(between, stream));
    told(cuStreamSynchronize(stream));
  }
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const int steps = std::atoi(words[1]), left = std::atoi(words[2]);
  Program program;
  Taken taken;
  nimble_region* region = nullptr;
  if (count > 3) nimble_region_begin(&region);
  for (int i = 0; i < steps; ++i) {
    if (i == steps / 4 && left >= 0) taken.take(static_cast<std::size_t>(left) << 10);
    program.step(static_cast<unsigned>(i));
  }
  taken.give_back();
  if (region) {
    nimble_region_end(region);
    char why[200] = {};
    nimble_region_why(region, why, sizeof why);
    std::fprintf(stderr, "region: %s\n", why);
    nimble_region_destroy(region);
  }
  for (int i = 0; i < 1000; ++i)
    if (program.failed[i]) std::printf("result %d: %d times\n", i, program.failed[i]);
  program.note(program.out[1]);
  std::printf("digest %016llx\n", static_cast<unsigned long long>(program.digest));
  return 0;
}
