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
    // Only what POSIX allows in the child of a process with threads: one of them may have held malloc's lock.
    char text[16];
    char* begin = text + sizeof text;
    *--begin = '\n';
    for (pid_t rest = getpid(); rest > 0; rest /= 10) *--begin = static_cast<char>('0' + rest % 10);
    const ssize_t length = text + sizeof text - begin;
    _exit(write(STDOUT_FILENO, begin, static_cast<std::size_t>(length)) == length && read(STDIN_FILENO, text, 1) == 1
              ? 0
              : 1);
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
