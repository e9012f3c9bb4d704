// A program that looks at its address space, or limits it. `limits WHAT`:
//   size         what cuInit and a context have added to the virtual size, in MiB
//   reserved     of the addresses that Nimble keeps free: the TiB that are mapped, and of these what a core dump and a
//                forked child would have
//   child        what the virtual size of a forked child is, in GiB
//   later HOW    limits itself to 600 GiB once the driver is there, by setrlimit, by prlimit, or twice, first to 100
//   TiB,
//                and tells how many of eight allocations of a GiB succeed; then goes on using the driver
//   other        limits a child of its own, and tells what of the addresses that Nimble keeps free is mapped: in TiB
//   nowhere      asks for a limit at an address that leads nowhere, and tells what that is
//   fiber        makes its calls on a stack of 16 KiB that no thread has
//   alternate    makes them in a signal handler with a stack of its own
//   deep KIB     uses so many KiB of its stack
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr std::uint64_t kLow = 0x302000000, kHigh = std::uint64_t{16411} << 32;
constexpr int kShift = 40;  // of TiB

long virtual_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmSize:", 0) == 0) return std::atol(line.c_str() + 7) >> 10;
  return 0;
}

void reserved() {
  start_driver();
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t all = 0, dumped = 0, forked = 0, bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    char rest = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx %c", &begin, &end, &rest) == 3)
      bytes = begin >= kLow && end <= kHigh ? end - begin : 0;
    if (line.rfind("VmFlags:", 0) != 0) continue;
    all += bytes;
    if (line.find(" dd") == std::string::npos) dumped += bytes;
    if (line.find(" dc") == std::string::npos) forked += bytes;
  }
  std::cout << (all >> kShift) << " " << (dumped >> kShift) << " " << (forked >> kShift) << "\n";
}

// So that memory is asked for again.
void use_driver() {
  CUdeviceptr memory = 0;
  unsigned word = 0;
  CHECK(cuMemAlloc(&memory, 1 << 20));
  CHECK(cuMemsetD32(memory, 7, 16));
  CHECK(cuMemcpyDtoH(&word, memory, sizeof word));
  CHECK(cuMemFree(memory));
  std::cout << word << "\n";
}

void later(const std::string& how) {
  start_driver();
  const rlimit limit{std::uint64_t{600} << 30, RLIM_INFINITY}, wide{std::uint64_t{100} << 40, RLIM_INFINITY};
  if (how == "twice" && setrlimit(RLIMIT_AS, &wide) != 0) std::exit(3);
  const int result = how == "prlimit" ? prlimit(0, RLIMIT_AS, &limit, nullptr) : setrlimit(RLIMIT_AS, &limit);
  int got = 0;
  for (int i = 0; i < 8; ++i) got += std::malloc(std::size_t{1} << 30) != nullptr;
  std::cout << result << " " << got << "\n";
  use_driver();
}

void child() {
  start_driver();
  const pid_t forked = fork();
  if (forked == 0) {
    std::cout << (virtual_mib() >> 10) << std::endl;
    _exit(0);
  }
  waitpid(forked, nullptr, 0);
}

void other() {
  start_driver();
  const pid_t forked = fork();
  if (forked == 0) {
    pause();
    _exit(0);
  }
  const rlimit limit{std::uint64_t{600} << 30, RLIM_INFINITY};
  if (prlimit(forked, RLIMIT_AS, &limit, nullptr) != 0) std::exit(3);
  kill(forked, SIGKILL);
  waitpid(forked, nullptr, 0);
  reserved();
}

ucontext_t g_main, g_fiber;

void calls() {
  start_driver();
  CUmodule module = nullptr;
  CUfunction mix = nullptr;
  CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&mix, module, "_Z3mixILi1EEvPKjS1_Pjij"));
  CUdeviceptr a = 0, b = 0;
  CHECK(cuMemAlloc(&a, 1024));
  CHECK(cuMemAlloc(&b, 1024));
  CHECK(cuMemsetD32(a, 5, 256));
  int count = 256;
  unsigned salt = 3, word = 0;
  for (int i = 0; i < 40; ++i) {
    void* first[] = {&a, &a, &b, &count, &salt};
    CHECK(cuLaunchKernel(mix, 4, 1, 1, 64, 1, 1, 0, nullptr, first, nullptr));
    void* second[] = {&b, &b, &a, &count, &salt};
    CHECK(cuLaunchKernel(mix, 4, 1, 1, 64, 1, 1, 0, nullptr, second, nullptr));
    CHECK(cuCtxSynchronize());
  }
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 20; ++i) {
    void* arguments[] = {&a, &a, &b, &count, &salt};
    CHECK(cuLaunchKernel(mix, 4, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuMemcpyDtoH(&word, b, sizeof word));
  std::printf("%u\n", word);
}

// Below it is what must not be touched.
void* small_stack(std::size_t bytes) {
  constexpr std::size_t kGuard = std::size_t{1} << 20;
  void* const memory = mmap(nullptr, kGuard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) std::exit(1);
  return static_cast<char*>(memory) + kGuard;
}

constexpr std::size_t kSmall = std::size_t{24} << 10;

void fiber() {
  getcontext(&g_fiber);
  g_fiber.uc_stack.ss_sp = small_stack(kSmall);
  g_fiber.uc_stack.ss_size = kSmall;
  g_fiber.uc_link = &g_main;
  makecontext(&g_fiber, calls, 0);
  swapcontext(&g_main, &g_fiber);
}

void alternate() {
  stack_t stack{};
  stack.ss_sp = small_stack(kSmall);
  stack.ss_size = kSmall;
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = [](int) { calls(); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
}

[[gnu::noinline]] int deep(std::size_t bytes) {
  auto* const frame = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 512) frame[i] = static_cast<char>(i);
  return frame[0];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "size") {
    const long before = virtual_mib();
    start_driver();
    std::cout << virtual_mib() - before << "\n";
  } else if (what == "reserved") {
    reserved();
  } else if (what == "child") {
    child();
  } else if (what == "other") {
    other();
  } else if (what == "later" && argc > 2) {
    later(argv[2]);
  } else if (what == "nowhere") {
    start_driver();
    const auto* const nowhere = reinterpret_cast<const rlimit*>(std::uintptr_t{8});
    std::cout << setrlimit(RLIMIT_AS, nowhere) << " " << (errno == EFAULT) << "\n";
  } else if (what == "fiber") {
    fiber();
  } else if (what == "alternate") {
    alternate();
  } else if (what == "deep" && argc > 2) {
    return deep(static_cast<std::size_t>(std::atoi(argv[2])) << 10);
  } else {
    return 2;
  }
}
