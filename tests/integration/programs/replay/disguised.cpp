// A step of three launches, or four: memory is changed, then read or changed through a disguised pointer, and other
// memory is changed. `disguised WHAT STEPS` prints a digest of all. WHAT is the disguise:
//   walk    a tag in a link that lies in memory
//   masked  a tag in a parameter
//   halves  two parameters of 32 bits
//   apart   the difference of two parameters
//   packed  a class whose members are not aligned
//   put     a table into which a kernel puts it byte by byte
//   units   in units of 16 bytes from null
// and, from step FROM on, and null before (`disguised WHAT STEPS FROM`):
//   sometimes    a tag in a parameter
//   sometimes_units, counted   in units of 16 bytes; an array that is counted from one
//   flagged      none: before, a flag says that no address is there, but what was left on the stack
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr std::uint64_t kTag = std::uint64_t{5} << 48, kFar = std::uint64_t{1} << 60;
constexpr std::size_t kBytes = 4096;

struct Node {
  std::uint64_t next;
  int value;
};
struct [[gnu::packed, gnu::aligned(4)]] Job {
  int factor;
  CUdeviceptr data;
  int more;
};
struct Table {
  CUdeviceptr entries;
  int count;
};
struct Factor {
  CUdeviceptr address;
  int value;
  unsigned in_memory;
};

struct Program {
  std::string what;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0, d = 0, table = 0;

  explicit Program(const char* disguise) : what(disguise) {
    start_driver();
    CHECK(cuModuleLoad(&module, image_path("disguised.simcuda").c_str()));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* each : {&a, &b, &c, &d, &table}) {
      CHECK(cuMemAlloc(each, kBytes));
      CHECK(cuMemsetD8(*each, 0, kBytes));
    }
    CHECK(cuMemsetD32(b, 7, 4));
    const Node head{a | kTag, 1};
    if (what == "walk") CHECK(cuMemcpyHtoD(c, &head, sizeof head));
    CHECK(cuCtxSynchronize());
  }

  template <class... Arguments>
  void launch(const char* name, Arguments... arguments) {
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module, name));
    void* parameters[] = {&arguments...};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }

  // Something else each time: other memory of the program, a non-address, and something that looks like an address.
  CUdeviceptr left_there(int step) const {
    const CUdeviceptr each[] = {0x3f800000, d, 0x7ffd12345678, a, 0, b + 16, ~CUdeviceptr{0}};
    return each[step % std::size(each)];
  }

  void step(int number, bool is_there) {
    if (what == "put") launch("put", table, a);
    launch("next", a, b);
    if (what == "walk") launch("walk", c);
    if (what == "masked") launch("masked", a | kTag, c);
    if (what == "halves") launch("halves", 3, static_cast<unsigned>(a), static_cast<unsigned>(a >> 32), c);
    if (what == "apart") launch("apart", a + kFar, kFar, c);
    if (what == "packed") launch("packed", Job{3, a, 11}, c);
    if (what == "put") launch("_Z6follow5TablePi", Table{table, 1}, c);
    if (what == "units") launch("units", std::uint64_t{0}, std::uint64_t{a >> 4}, c);
    if (what == "sometimes") launch("sometimes", is_there ? a | kTag : 0, c);
    if (what == "sometimes_units") launch("units", std::uint64_t{0}, is_there ? std::uint64_t{a >> 4} : 0, c);
    if (what == "counted") launch("_Z7countedPiPKi", c, is_there ? a - 4 : 0);
    if (what == "flagged") launch("flagged", is_there ? Factor{a, 5, 1} : Factor{left_there(number), 5, 0}, c);
    launch("next", d, b);
    CHECK(cuStreamSynchronize(stream));
  }

  unsigned digest() const {
    unsigned result = 0;
    for (const CUdeviceptr each : {a, c, d}) {
      unsigned words[4];
      CHECK(cuMemcpyDtoH(words, each, sizeof words));
      result = result * 31 + words[2];
    }
    return result;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  Program program(argv[1]);
  const int from = argc == 4 ? std::atoi(argv[3]) : 0;
  for (int step = 0; step < std::atoi(argv[2]); ++step) program.step(step, step >= from);
  std::printf("%u\n", program.digest());
}
