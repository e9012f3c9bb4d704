// A program that ends, or goes on in a child, while it holds what it holds.
//
//   handler_exit malloc   calls _exit in a handler that interrupts malloc and free at any place
//   handler_exit fork     ends, while its child prints a process id and waits for a line
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/integration/programs/common/driver.h"

int main(int count, char** arguments) {
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuCtxCreate(&context, nullptr, 0, 0));
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 256));
  CHECK(cuMemsetD8(memory, 1, 256));
  if (count > 1 && std::strcmp(arguments[1], "fork") == 0) {
    if (fork() != 0) _exit(0);
    std::printf("%d\n", static_cast<int>(getpid()));
    std::fflush(stdout);
    char line[8];
    return std::fgets(line, sizeof line, stdin) == nullptr ? 1 : 0;
  }
  signal(SIGALRM, [](int) { _exit(0); });
  const itimerval soon{{0, 0}, {0, 20'000 + static_cast<int>(getpid()) % 997}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  void* held[64] = {};
  for (unsigned random = 1;;) {
    random = random * 1103515245u + 12345u;
    void*& one = held[random >> 16 & 63];
    std::free(one);
    one = std::malloc(1100 + (random >> 8 & 0x3fff));
  }
}
